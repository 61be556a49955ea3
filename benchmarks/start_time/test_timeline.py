"""The timeline of a start from events and samples, and the hook that makes the events."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from benchmarks.start_time.hook.sitecustomize import EVENTS_FILE, FOLDER_VARIABLE
from benchmarks.start_time.sampler import Sampler, Seen
from benchmarks.start_time.timeline import comparison, short_name, start_of, table

HOOK = Path(__file__).parent / "hook"
EVENTS = [
    {"event": "exec", "pid": 1, "time": 100.0, "command": "python -m rljob_runtime launch"},
    {"event": "import", "pid": 1, "time": 104.0, "library": "torch", "wall": 3.0, "processor": 2.0},
    {"event": "exec", "pid": 2, "time": 105.0, "command": "python setup_worker.py"},
    {"event": "fork", "pid": 3, "time": 106.0},
    {"event": "import", "pid": 2, "time": 108.0, "library": "torch", "wall": 1.0, "processor": 0.5},
    {"event": "import", "pid": 2, "time": 109.0, "library": "verl", "wall": 2.0, "processor": 1.5},
    {"event": "import", "pid": 2, "time": 130.0, "library": "vllm", "wall": 9.0, "processor": 9.0},
]
SEEN = [
    Seen(1, 99.5, "python -m rljob_runtime launch", [(99.9, 0.5), (104.0, 3.0), (119.0, 4.0), (140.0, 9.0)]),
    Seen(2, 104.9, "ray::WorkerDict.step extra", [(110.0, 5.0)]),
    Seen(3, 106.0, "VLLM::EngineCore", [(107.0, 0.1)]),
    Seen(4, 90.0, "rljob.cli.main", [(95.0, 2.0)]),
]


def test_processor_time_counts_from_the_launcher_to_the_first_step() -> None:
    start = start_of("new", EVENTS, SEEN, begun=120.0, done=125.0)
    assert (start.first_step_begun, start.first_step_done) == (20.0, 25.0)
    assert start.processor == pytest.approx(3.5 + 5.0 + 0.1)
    assert start.import_processor == 4.0
    assert start.importing == 2
    launcher, worker, engine = start.processes
    assert (launcher.name, worker.name, engine.name) == ("launcher", "WorkerDict.step", "VLLM::EngineCore")
    assert worker.imports == {"torch": 1.0, "verl": 2.0}
    assert (worker.ready, worker.forked, engine.forked) == (9.0, False, True)


def test_tables_show_every_process_that_took_time() -> None:
    start = start_of("new", EVENTS, SEEN, begun=120.0, done=125.0)
    said = table(start)
    assert "WorkerDict.step: torch 1.0, verl 2.0" in said
    assert "EngineCore" not in said
    assert "1 others" in said
    assert comparison([start, start]).splitlines()[1].split()[:6] == ["new", "2", "20.0", "25.0", "8.6", "4.0"]


def test_a_run_without_a_launcher_is_no_start() -> None:
    with pytest.raises(ValueError, match="launcher"):
        start_of("new", EVENTS[2:], SEEN, begun=120.0, done=125.0)


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("ray::RLJobTaskRunner", "RLJobTaskRunner"),
        ("VLLM::Worker_TP0 x", "VLLM::Worker_TP0"),
        ("/opt/venv/bin/python -m rljob_runtime.fork_server.server 256", "fork server"),
        ("/usr/bin/gcs_server --log_dir=x", "gcs_server"),
        ("", "?"),
    ],
)
def test_a_process_is_named_by_what_it_does(title: str, name: str) -> None:
    assert short_name(title) == name


def test_the_hook_times_each_library_without_what_it_imports_of_others(tmp_path: Path) -> None:
    (tmp_path / "verl").mkdir()
    (tmp_path / "verl/__init__.py").write_text("import time, torch; time.sleep(0.05)")
    (tmp_path / "verl/part.py").write_text("import time; time.sleep(0.1)")
    (tmp_path / "torch.py").write_text("import time; time.sleep(0.3)")
    program = "import os, verl.part; pid = os.fork(); pid and os.waitpid(pid, 0)"
    paths = os.pathsep.join([str(HOOK), str(tmp_path)])
    environ = {**os.environ, FOLDER_VARIABLE: str(tmp_path), "PYTHONPATH": paths}
    subprocess.run([sys.executable, "-c", program], env=environ, check=True)
    events = [json.loads(line) for line in (tmp_path / EVENTS_FILE).read_text().splitlines()]
    assert [event["event"] for event in events] == ["exec", "import", "import", "import", "fork"]
    torch, verl, part = events[1:4]
    assert [event["library"] for event in (torch, verl, part)] == ["torch", "verl", "verl"]
    assert torch["wall"] >= 0.3
    assert verl["wall"] < torch["wall"]
    assert part["wall"] >= 0.1
    assert events[4]["pid"] != events[0]["pid"] == torch["pid"]


def test_only_marked_processes_are_sampled() -> None:
    command = [sys.executable, "-c", "import time; print(sum(range(10_000_000)), flush=True); time.sleep(60)"]
    with subprocess.Popen(command, env={**os.environ, "MARK": "ours"}, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        sampler = Sampler("MARK=ours")
        sampler.sample(1.0)
        process.kill()
    (seen,) = sampler.seen()
    assert seen.pid == process.pid
    assert "time.sleep" in seen.title
    assert abs(seen.began - time.time()) < 60
    assert seen.processor_at(0.5) == 0.0
    assert seen.processor_at(2.0) == seen.processor[0][1] > 0
