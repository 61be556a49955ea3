"""Measure starts: local runs of the quickstart, each ended after its first step, one code after the other.

Runs where the runtime's packages are (`make start-time` takes the image). An arm is a folder with both of our wheels
installed; without one, the code that Python finds. Arms alternate, so that a machine whose pace drifts favours none.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import yaml

from benchmarks.start_time.hook.sitecustomize import EVENTS_FILE, FOLDER_VARIABLE
from benchmarks.start_time.sampler import Sampler
from benchmarks.start_time.timeline import Start, comparison, start_of, table
from benchmarks.tap_cost.__main__ import machine

QUICKSTART = Path(os.environ.get("RLJOB_EXAMPLES", "examples")) / "quickstart.yaml"
HOOK = Path(__file__).parent / "hook"
RUN_SECONDS = 900


def one_step() -> str:
    """Return the quickstart with one step and a model that was hardly warmed up."""
    documents = list(yaml.safe_load_all(QUICKSTART.read_text()))
    for document in documents:
        if document["kind"] == "RLJob":
            document["spec"]["trainer"]["steps"] = 1
        elif document["kind"] == "ConfigMap":
            script = document["data"]["prepare.py"]
            document["data"]["prepare.py"] = script.replace("WARM_UP_STEPS = 1000", "WARM_UP_STEPS = 30")
    # As JSON: PyYAML writes the string "1e-3" without quotes.
    return "\n---\n".join(json.dumps(document) for document in documents)


def run(arm: str, code: Path | None, folder: Path, number: int) -> Start:
    """Start once; raises RuntimeError with the end of the log if the run fails."""
    traces = folder / f"start-{number}"
    traces.mkdir()
    work = traces / "work"
    paths = [str(HOOK), *([str(code)] if code else []), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, FOLDER_VARIABLE: str(traces), "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    command = [sys.executable, "-m", "rljob.cli.main", "run", "--local", "-f", "job.yaml", "--workdir", str(work)]
    sampler = Sampler(f"{FOLDER_VARIABLE}={traces}")
    sampler.start()
    with (traces / "log").open("w") as log:
        done = subprocess.run(
            command, cwd=folder, env=environment, stdout=log, stderr=log, timeout=RUN_SECONDS, check=False
        )
    seen = sampler.end()
    if done.returncode:
        raise RuntimeError(f"start {number} of {arm}: exit code {done.returncode}\n{(traces / 'log').read_text()}")
    attempt = json.loads((work / "spool/current.json").read_text())["attempt"]
    own = work / f"spool/attempt-{attempt}"
    first = json.loads((own / "steps.jsonl").read_text().splitlines()[0])
    events = [json.loads(line) for line in (traces / EVENTS_FILE).read_text().splitlines()]
    return start_of(arm, events, seen, (own / "begun").stat().st_mtime, float(first["time"]))


def main() -> int:
    """Run the benchmark, and print the figures."""
    parser = argparse.ArgumentParser(prog="start_time", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--starts", type=int, default=3, help="of each arm")
    parser.add_argument(
        "--arm", action="append", default=[], metavar="NAME=FOLDER", help="wheels to measure; default: those installed"
    )
    parser.add_argument("--keep", type=Path, help="folder for the model and all traces, which stay")
    options = parser.parse_args()
    arms = dict(word.split("=", 1) for word in options.arm) or {"installed": ""}
    folder = options.keep or Path(tempfile.mkdtemp(prefix="start-time-"))
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.yaml").write_text(one_step())
    starts = []
    try:
        for _ in range(options.starts):
            for name, code in arms.items():
                start = run(name, Path(code) if code else None, folder, time.time_ns())
                starts.append(start)
                print(f"{table(start)}\nload over one minute: {os.getloadavg()[0]:.1f}\n", flush=True)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"machine": machine(), "starts": [dataclasses.asdict(start) for start in starts]}))
    print(f"machine: {', '.join(f'{key} {value}' for key, value in machine().items())}")
    print(comparison(starts))
    return 0


if __name__ == "__main__":
    sys.exit(main())
