"""Run MindCluster's ascend-fd where it is installed, and put its result into one sentence.

Its interface, as of 7.3 (docs/en/faultdiag/api/log_cleaning.md and fault_diagnosis.md): `parse -i <logs of a node> -o
<empty folder>` on each node, then `diag -i <folder with the folders of all nodes> -o <folder>` on one, which writes
`fault_diag_result/diag_report.json`. It exits with 0 after a failure too, so only the report counts. No other module
knows its format.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rljob_runtime.contract import ForeignJSONError, legible, parse_foreign_json
from rljob_runtime.node.ascend_tools import KILL_SECONDS

PROGRAM = "ascend-fd"
REPORT = Path("fault_diag_result/diag_report.json")
HOME_VARIABLE = "ASCEND_FD_HOME_PATH"
REPORT_BYTES = 8 << 20
FAULTS_SHOWN, PLACES_SHOWN = 2, 3
TEXT_CHARACTERS = 200
"""Characters kept of one description, which may be a page long."""
NOTHING_FOUND = frozenset({"NORMAL_OR_UNSUPPORTED"})
"""Code without a fault (docs/en/faultdiag/user_guide/12_cleaning_and_diagnosing_fault_events.md)."""
NO_ERROR_CODE = 102
"""Root_Cluster: no node has errors in its logs (controller/controller.py, NORMAL_RC_CODE)."""


def is_installed() -> bool:
    """Return whether this container has ascend-fd."""
    return shutil.which(PROGRAM) is not None


def parse(logs: Path, target: Path, seconds: float) -> str:
    """Clean the logs of this node; return what went wrong, or nothing."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    problem = _run(("parse", "-i", str(logs), "-o", str(target)), seconds)
    return problem or ("" if any(target.iterdir()) else f"{PROGRAM} parse wrote nothing to {target}")


def diagnose(parsed: Path, target: Path, seconds: float) -> tuple[str, str]:
    """Diagnose the cleaned logs of all nodes; return the result in a sentence, and what went wrong."""
    target.mkdir(parents=True, exist_ok=True)
    report = target / REPORT
    report.unlink(missing_ok=True)
    if problem := _run(("diag", "-i", str(parsed), "-o", str(target)), seconds):
        return "", problem
    try:
        with report.open("rb") as file:
            text = file.read(REPORT_BYTES + 1)
        if len(text) > REPORT_BYTES:
            return "", f"{report} is larger than {REPORT_BYTES} bytes, and was not read"
        return summary(parse_foreign_json(text)), ""
    except (OSError, ForeignJSONError) as error:
        return "", f"{PROGRAM} diag left no report: {error}"


def summary(report: Any) -> str:  # noqa: ANN401 - JSON of another program
    """Return the faults with their devices, otherwise the devices with the first error; empty if there is neither."""
    graph, roots = (_mapping(_mapping(report).get(name)) for name in ("Knowledge_Graph", "Root_Cluster"))
    told = [_fault(_mapping(fault)) for fault in _sequence(graph.get("fault"))[:FAULTS_SHOWN]]
    if found := [text for text in told if text]:
        return "; ".join(found)
    description = _mapping(roots.get("fault_description"))
    if not roots.get("analyze_success") or description.get("code") == NO_ERROR_CODE:
        return ""
    places = _places(roots.get("root_cause_device"))
    return f"{_text(description.get('string'))}{places}" if description.get("string") else ""


def _fault(fault: Mapping[str, Any]) -> str:
    code = _text(fault.get("code"))
    if not code or code in NOTHING_FOUND:
        return ""
    cause = _text(fault.get("cause_en") or fault.get("cause_zh"))
    return f"{code}{f' ({cause})' if cause else ''}{_places(fault.get('fault_source'))}"


def _places(devices: Any) -> str:  # noqa: ANN401 - JSON of another program
    named = [_text(device) for device in _sequence(devices)]
    rest = f" and {len(named) - PLACES_SHOWN} more" if len(named) > PLACES_SHOWN else ""
    return f" at {', '.join(named[:PLACES_SHOWN])}{rest}" if named else ""


def _mapping(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - JSON of another program
    return value if isinstance(value, dict) else {}


def _sequence(value: Any) -> Sequence[Any]:  # noqa: ANN401 - JSON of another program
    return value if isinstance(value, list) else []


def _text(value: Any) -> str:  # noqa: ANN401 - JSON of another program
    text = legible(" ".join(value.split())) if isinstance(value, str) else ""
    return text if len(text) <= TEXT_CHARACTERS else f"{text[: TEXT_CHARACTERS - 1]}…"


def _run(words: Sequence[str], seconds: float) -> str:
    """Run ascend-fd; return what went wrong. It and the processes that it starts end at the deadline."""
    path = shutil.which(PROGRAM)
    if path is None:
        return f"{PROGRAM} is not in this container"
    if seconds <= 0:
        return f"no time was left for {PROGRAM} {words[0]}"
    # A folder for its own logs and settings, which by default are in the home folder.
    with tempfile.TemporaryDirectory(prefix="rljob-ascend-fd-", ignore_cleanup_errors=True) as home:
        try:
            child = subprocess.Popen(
                [path, *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={HOME_VARIABLE: home, **os.environ},
                start_new_session=True,
            )
        except OSError as error:
            return f"{path} cannot be run: {error}"
        try:
            code = child.wait(seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(KILL_SECONDS)
            return f"{PROGRAM} {words[0]} did not end within {seconds:.0f} s"
    return "" if code == 0 else f"{PROGRAM} {words[0]} failed with exit code {code}"
