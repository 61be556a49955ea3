"""A cheap runtime: a Ray that only listens, and a launcher that counts steps and follows stop requests."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rljob.cli.local import follow, initializers, processes, run_local

RAY = """
import argparse, socket, time
def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int)
    chosen, _ = parser.parse_known_args()
    if chosen.port is None:
        raise SystemExit("no port")
    listener = socket.create_server(("127.0.0.1", chosen.port))
    time.sleep(60)
"""
LAUNCHER = '''
"""Trains a step every STEP_SECONDS, saves every second one, resumes where it was."""
import json, os, sys, time
from pathlib import Path
from rljob_runtime.contract import (
    JobConfig, Outcome, Phase, Progress, StartProgress, StartStage, StopMode, StopRequest)

job = JobConfig.from_json(Path(os.environ["RLJOB_CONFIG"]).read_bytes())
assert job.digest() == os.environ["RLJOB_JOB_DIGEST"]
assert os.environ["RAY_ADDRESS"].startswith("127.0.0.1:")
spool, number = Path(os.environ["RLJOB_SPOOL"]), int(os.environ["RLJOB_ATTEMPT"])
attempt = spool / f"attempt-{number}"
attempt.mkdir(parents=True, exist_ok=True)
saved = Path(job.checkpoint_path) / "saved"
saved.parent.mkdir(parents=True, exist_ok=True)
step = int(saved.read_text()) if saved.exists() else 0
checkpoint = step or None

def tell(phase, outcome=None):
    progress = Progress("pod", phase, number, "id", step, job.total_steps, time.time(), time.time(), reward=0.5,
                        step_seconds=0.1, checkpoint_step=checkpoint, outcome=outcome)
    (spool / "next").write_bytes(progress.to_json())
    (spool / "next").replace(spool / "current.json")

def leave(code, reason, message):
    tell(Phase.ENDED, Outcome(code, reason, message, last_step=step))
    sys.exit(code)

behaviour = os.environ.get("BEHAVIOUR", "")
if behaviour == "silent":
    time.sleep(60)
start = StartProgress(StartStage.LOADING_MODEL, time.time(), 1, 2)
(attempt / "start.json").write_bytes(start.to_json())
tell(Phase.STARTING)
if behaviour == "broken":
    leave(64, "PathMissing", "model.path: /x does not exist")
if behaviour == "killed":
    os.kill(os.getpid(), 9)
while True:
    time.sleep(0.1)
    request = attempt / "stop.json"
    mode = StopRequest.from_json(request.read_bytes()).mode if request.exists() else None
    if mode is StopMode.IMMEDIATE:
        if behaviour == "deaf":
            time.sleep(60)
        leave(66, "Stopped", "at once")
    if mode is StopMode.STALLED:
        if behaviour == "deaf and slow":
            time.sleep(60)
        leave(67, "Stalled", "rank 3 is in ask_the_judge")
    if "slow" in behaviour:
        continue
    if step >= job.total_steps:
        leave(0, "Completed", f"trained {step} steps")
    step += 1
    if mode is StopMode.AFTER_STEP or step % 2 == 0:
        checkpoint = step
        saved.write_text(str(step))
    with (attempt / "steps.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "time": 1.0, "metrics": {"critic/score/mean": 0.5}}) + "\\n")
    tell(Phase.TRAINING)
    if mode is StopMode.AFTER_STEP:
        leave(66, "Stopped", "after the step")
'''


@pytest.fixture
def temporary() -> Iterator[Path]:
    """Return a temporary folder with a short path, which no other run on this machine uses."""
    with tempfile.TemporaryDirectory(prefix="t", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture
def runtime(tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder to run in; the packages of the runtime exist by name."""
    packages = tmp_path / "packages"
    for name in ("ray/scripts", "verl", "vllm"):
        (packages / name).mkdir(parents=True)
    for name in ("ray", "ray/scripts", "verl", "vllm"):
        (packages / name / "__init__.py").write_text("")
    (packages / "ray/scripts/scripts.py").write_text(RAY)
    (packages / "launcher.py").write_text(LAUNCHER)
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.setenv("PYTHONPATH", str(packages))
    monkeypatch.setattr(run_local, "LAUNCH", (sys.executable, str(packages / "launcher.py")))
    monkeypatch.setattr(run_local, "END_SECONDS", 2.0)
    for module in (follow, initializers, processes):
        monkeypatch.setattr(module, "POLL_SECONDS", 0.02)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return tmp_path
