"""examples/ray-train.yaml and examples/rllib.yaml: their programs learn, save and resume with the arguments of the job.

A local Ray has the job's devices as the resource NPU, as the pods of the class cpu do. RLlib's own requirements are not
in the image; scripts.in_image installs the locked ones (requirements/seams.in).
"""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.command.attempt_folders import newest
from rljob_runtime.command.placeholders import arguments, values_of
from rljob_runtime.command.progress import parse_json
from rljob_runtime.contract import CommandCheckpoint, CommandConfig, JobConfig

JOBS = Path(os.environ.get("RLJOB_JOBS", "/nowhere")) / "commands"
EXAMPLES = Path(os.environ.get("RLJOB_EXAMPLES", "/nowhere"))
SECONDS = 900
RUN = """
import ray, runpy, sys
start = ray.init
ray.init = lambda: start(num_cpus=2, resources={"NPU": 2}, include_dashboard=False, log_to_driver=False)
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(not os.environ.get("RLJOB_JOBS"), reason="scripts.in_image renders the jobs into RLJOB_JOBS"),
]


def commanded(name: str, folder: Path) -> JobConfig:
    """Return the job of an example, with its files in a folder of the test."""
    text = (JOBS / f"{name}.json").read_text()
    for place in ("/data", "/code", "/tmp/steps.jsonl"):
        text = text.replace(place, f"{folder}/{place.strip('/').replace('tmp/', '')}")
    (folder / "code").mkdir()
    for document in yaml.safe_load_all((EXAMPLES / f"{name}.yaml").read_text()):
        for file, content in document.get("data", {}).items():
            (folder / "code" / file).write_text(content)
    return JobConfig.from_json(text.encode())


def run(job: JobConfig, attempt: int, start: Start, folder: Path) -> list[tuple[int, float]]:
    """Run an attempt, and return its steps with their scores."""
    command = job.command
    assert isinstance(command, CommandConfig)
    assert command.progress is not None
    saves = folder / f"data/checkpoints/attempt-{attempt}"
    values = values_of(job, attempt, start, saves)
    _, *words = arguments(command, values)
    records = folder / "steps.jsonl" if "{attempt}" not in str(command.progress.path) else None
    if records is not None and f"--records={records}" not in words:
        words.append(f"--records={records}")
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), os.environ["RLJOB_MEGATRON"]]))
    done = subprocess.run(
        [sys.executable, "-c", RUN, *words],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    file = records or folder / f"data/records/{attempt}.jsonl"
    reports = [parse_json(line, command.progress.step_key) for line in file.read_text().splitlines()]
    return [(report.step, report.metrics["score"]) for report in reports if report is not None]


@pytest.mark.parametrize(("name", "steps", "better"), [("ray-train", 40, 0.1), ("rllib", 6, 20.0)])
def test_it_learns_saves_and_resumes(name: str, steps: int, better: float, tmp_path: Path) -> None:
    job = dataclasses.replace(commanded(name, tmp_path), total_steps=steps)
    first = run(job, 1, Start(), tmp_path)
    assert [step for step, _ in first] == list(range(1, steps + 1))
    assert first[-1][1] > first[0][1] + better
    assert job.command is not None
    layout = job.command.checkpoint
    assert isinstance(layout, CommandCheckpoint)
    saved = newest(tmp_path / "data/checkpoints/attempt-1", layout)
    assert saved is not None
    assert saved.step == steps
    more = dataclasses.replace(job, total_steps=steps + 2)
    second = run(more, 2, Start(folder=saved.path, step=steps), tmp_path)
    assert [step for step, _ in second][-2:] == [steps + 1, steps + 2]
    assert second[-1][1] > first[0][1] + better
