"""What a check found, as data and as a page. Pure.

The rows and verdicts are those of the runtime's check-image, as JSON. What keeps that from running at all, and what
only the class of the node shows, is added here.
"""

from __future__ import annotations

import itertools
import json
import re
import shlex
import textwrap
from collections.abc import Mapping
from typing import Any, TypeGuard

from rljob.cli.check_image.follow import LAST_LINES, Ended
from rljob.cli.errors import UsageError
from rljob.cli.status import table
from rljob.render.image_check import BASH, NO_PYTHON, OLD_PYTHON, ImageCheck

FITS, REFUSED = "fits", "refused"
EXIT_CODES = {FITS: 0, "untried": 3, "degraded": 3, REFUSED: 64}
"""As rljob_runtime.image_check.report, from best to worst."""
VERL, COMMAND = "Verl", "Command"
NPU_ROWS = frozenset({"torch-npu", "vllm-ascend", "cann"})
"""Rows that only images for NPUs have: rljob_runtime.image_check.judge."""
TORCH_NPU = "importing torch_npu and what else a run imports: --deep does"
DRIVER = "driver, firmware and devices of the node: the node checks of each run compare them"
OTHER_CPU = "exec format error"
"""Of the kernel: execve(2), ENOEXEC."""
ABSENT_PROGRAM = re.compile(r"no such file|not found", re.IGNORECASE)
"""Of runc and crun, as core/attempts/container_failures.py."""
OBJECT = re.compile(r"^\{", re.MULTILINE)
OBJECTS_MAX = 100
"""Lines that may begin the result: an image may print anything, and each is parsed."""
WIDTH = 118
Document = dict[str, Any]


def read(ended: Ended, check: ImageCheck, class_name: str | None) -> Document:
    """Return the result. Raise UsageError if the check itself failed."""
    found = start_problem(ended, check.user) or _printed(ended, check)
    on_npu = _is_for_npus(found)
    facts = check.accelerator
    if facts is not None and facts.is_npu:
        require_npu_image(found, class_name)
    place = {"image": check.image, "class": class_name, "node": ended.node, "runtimeImage": check.runtime_image}
    # The deep check imports it, and says so if that needs the driver.
    not_checked = [DRIVER] if check.deep else [TORCH_NPU, DRIVER]
    wants_npu = on_npu or (facts is not None and facts.is_npu)
    return {**place, "user": check.user, **found, "notChecked": not_checked if wants_npu else []}


def require_npu_image(found: Document, class_name: str | None) -> None:
    """Add a row that refuses, for launcher Verl, an image that is not for NPUs."""
    if not _is_for_npus(found):
        message = "has NPUs, but the image has none of torch_npu, vllm-ascend and CANN; use an image for this hardware"
        _refuse(found, f"class {class_name}", "no image for NPUs", message, VERL)


def _is_for_npus(found: Document) -> bool:
    return any(row["subject"] in NPU_ROWS for row in found["rows"])


def find(log: str) -> Document | None:
    """Return the result that the runtime printed as JSON, between lines of the image's own; None if there is none."""
    decoder = json.JSONDecoder()
    for begin in itertools.islice(OBJECT.finditer(log), OBJECTS_MAX):
        try:
            found, _ = decoder.raw_decode(log, begin.end() - 1)
        except (ValueError, RecursionError):
            continue
        if _is_result(found):
            return found
    return None


def _printed(ended: Ended, check: ImageCheck) -> Document:
    if (found := find(ended.log)) is not None:
        return found
    lines = ended.log.splitlines()
    if OTHER_CPU in (ended.log + ended.message).lower():
        raise UsageError(
            f"{check.image} is not for the CPU architecture of node {ended.node} ({OTHER_CPU}); choose nodes for "
            "which it is with --class"
        )
    last = " | ".join(line.strip() for line in lines[-LAST_LINES:]) or ended.message or "it printed nothing"
    raise UsageError(
        f"the check of {check.image} ended with exit code {ended.exit_code} and without a result: {last}; check that "
        f"{check.runtime_image} is the operator's image of this release"
    )


def _is_result(found: Any) -> TypeGuard[Document]:  # noqa: ANN401 - a JSON value
    """Return whether a JSON value is the runtime's result: an image may print anything."""
    try:
        rows, launchers = found["rows"], found["launchers"]
        texts = [text for row in rows for text in (row["subject"], row["seen"], row["message"])]
        verdicts = [verdict for row in rows for verdict in row["verdicts"].values()]
        for name in (VERL, COMMAND):
            verdicts.append(launchers[name]["verdict"])
            texts += [launchers[name]["headline"], *launchers[name]["reasons"], *launchers[name].get("install", ())]
    except (AttributeError, KeyError, TypeError):
        return False
    return (
        isinstance(rows, list)
        and launchers.keys() == {VERL, COMMAND}
        and all(row["verdicts"] for row in rows)
        and all(isinstance(text, str) for text in texts)
        and all(isinstance(verdict, str) and verdict in EXIT_CODES for verdict in verdicts)
    )


def start_problem(ended: Ended, user: int) -> Document | None:
    """Return the result for an image in which the runtime cannot start, or None."""
    reach = f"; the check runs as user {user}: try --run-as-user if the image has one that only others can run"
    if BASH in ended.message and ABSENT_PROGRAM.search(ended.message):
        message = f"pods start Ray through {BASH}; install it in the image ({ended.message})"
        return _only("bash", message)
    if ended.exit_code == NO_PYTHON:
        return _only("python", f"there is no program python on PATH; install Python 3.11 to 3.13{reach}")
    if ended.exit_code == OLD_PYTHON:
        seen = (ended.log.split() or ["?"])[-1]
        return _only("python", "the runtime needs Python 3.11 to 3.13; use an image with one of them", seen)
    return None


def _only(subject: str, message: str, seen: str = "absent") -> Document:
    found: Document = {"launchers": {}, "rows": []}
    for launcher in (VERL, COMMAND):
        found["launchers"][launcher] = {"verdict": FITS, "headline": FITS, "reasons": []}
    _refuse(found, subject, seen, message, VERL, COMMAND)
    return found


def _refuse(found: Document, subject: str, seen: str, message: str, *launchers: str) -> None:
    """Add a row that refuses the image."""
    found["rows"] = [
        *found["rows"],
        {"subject": subject, "seen": seen, "verdicts": dict.fromkeys(launchers, REFUSED), "message": message},
    ]
    for launcher in launchers:
        judgement = found["launchers"][launcher]
        judgement |= {
            "verdict": REFUSED,
            "headline": REFUSED,
            "reasons": [*judgement["reasons"], f"{subject}: {message}"],
        }


def exit_code(found: Document, launcher: str) -> int:
    """Return the exit code for a launcher."""
    return EXIT_CODES[found["launchers"][launcher]["verdict"]]


def page(found: Document) -> str:
    """Return the table, one paragraph for each launcher, and what was not checked."""
    # Seams that are as expected would fill the screen.
    shown = [row for row in found["rows"] if ":" not in row["subject"] or _worst(row) != FITS]
    lines = [f"{found['image']} on node {found['node']}, with the runtime of {found['runtimeImage']}"]
    lines += ["", table([("SUBJECT", "VERDICT", "SEEN"), *((r["subject"], _worst(r), r["seen"]) for r in shown)])]
    if hidden := len(found["rows"]) - len(shown):
        lines.append(f"{hidden} seams are as expected")
    for launcher, judgement in found["launchers"].items():
        lines += ["", f"launcher {launcher}: {judgement['headline']}"]
        for reason in judgement["reasons"]:
            lines += textwrap.wrap(reason, WIDTH, initial_indent="  - ", subsequent_indent="    ")
        if wanted := judgement.get("install"):
            lines.append(f"  pip install {shlex.join(wanted)}")
    if found["notChecked"]:
        lines += ["", "not checked:", *(f"  - {each}" for each in found["notChecked"])]
    return "\n".join(lines)


def _worst(row: Mapping[str, Any]) -> str:
    return str(max(row["verdicts"].values(), key=list(EXIT_CODES).index))
