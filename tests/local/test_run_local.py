"""A local run trains with real verl, is interrupted, and resumes: the quickstart on one device with few steps.

All tests share one pair of runs, because verl and vLLM start slowly. The tests run in the runtime image, or anywhere
with the runtime's packages: `python -m pytest -m e2e tests/local`.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        importlib.util.find_spec("verl") is None and not os.environ.get("RLJOB_IN_IMAGE"),
        reason="verl is not installed here; the stage `local` runs it in the image",
    ),
]
QUICKSTART = Path(os.environ.get("RLJOB_EXAMPLES", "examples")) / "quickstart.yaml"
SHARED_MEMORY = Path("/dev/shm")
STEPS, INTERRUPT_AT = 4, 1
RUN_SECONDS = 600


@dataclass
class Record:
    """The result of a run."""

    code: int
    output: str
    steps: list[int] = field(default_factory=list)
    remains: list[str] = field(default_factory=list)
    """Processes, temporary folders and shared memory that the run leaves behind."""


def small_quickstart() -> str:
    """Return the quickstart on one device, with a shorter warm-up of the model."""
    documents = list(yaml.safe_load_all(QUICKSTART.read_text()))
    for document in documents:
        if document["kind"] == "RLJob":
            document["spec"]["trainer"]["steps"] = STEPS
            document["spec"]["workerGroups"][0]["devicesPerNode"] = 1
        elif document["kind"] == "ConfigMap":
            script = document["data"]["prepare.py"]
            document["data"]["prepare.py"] = script.replace("WARM_UP_STEPS = 1000", "WARM_UP_STEPS = 30")
    # JSON, because PyYAML writes the string "1e-3" without quotes.
    return "\n---\n".join(json.dumps(document) for document in documents)


def traces() -> set[str]:
    """Return what a run may leave behind: processes by name, temporary folders and shared memory."""
    found = {str(path) for path in (*Path("/tmp").glob("rljob-*"), *SHARED_MEMORY.glob("psm_*"))}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "raylet" in words or "VLLM" in words or "rljob_runtime" in words:
            found.add(f"{entry.parent.name} {words[:80]}")
    return found


def progress(folder: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((folder / "spool/current.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


def run(folder: Path, interrupt_at: int | None) -> Record:
    before = traces()
    command = [sys.executable, "-m", "rljob.cli.main", "run", "--local", "-f", "job.yaml", "--workdir", str(folder)]
    log = folder.parent / "output"
    with log.open("w") as stream:
        process = subprocess.Popen(command, cwd=folder.parent, stdout=stream, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + RUN_SECONDS
        while process.poll() is None:
            if time.monotonic() > deadline:
                process.kill()
            if interrupt_at is not None and progress(folder).get("step", 0) >= interrupt_at:
                process.send_signal(signal.SIGINT)
                interrupt_at = None
            time.sleep(0.1)
    print(log.read_text())
    attempt = progress(folder)["attempt"]
    records = folder / f"spool/attempt-{attempt}/steps.jsonl"
    steps = [json.loads(line)["step"] for line in records.read_text().splitlines()]
    return Record(process.returncode, log.read_text(), steps, sorted(traces() - before))


@dataclass
class Pair:
    """The interrupted run, the step that it saved, and the next run."""

    first: Record
    saved: int
    second: Record


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    here = tmp_path_factory.mktemp("local")
    (here / "job.yaml").write_text(small_quickstart())
    folder = here / "work"
    first = run(folder, INTERRUPT_AT)
    tracker = folder / "checkpoints/latest_checkpointed_iteration.txt"
    saved = int(tracker.read_text()) if tracker.exists() else 0
    return Pair(first, saved, run(folder, None))


def test_ctrl_c_saves_the_step_in_progress(pair: Pair) -> None:
    assert pair.first.code == 130, pair.first.output
    assert pair.first.steps == list(range(1, pair.saved + 1))
    assert INTERRUPT_AT <= pair.saved < STEPS
    assert f"step {pair.saved} is saved; run the same command again to resume" in pair.first.output


def test_the_second_run_continues_there_and_ends(pair: Pair) -> None:
    assert pair.second.code == 0, pair.second.output
    assert pair.second.steps == list(range(pair.saved + 1, STEPS + 1))
    assert f"done: trained {STEPS} steps" in pair.second.output


def test_nothing_is_left_behind(pair: Pair) -> None:
    assert pair.first.remains == []
    assert pair.second.remains == []
