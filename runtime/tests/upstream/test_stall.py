"""Stacks with torch and Ray: a collective that one rank never enters, and workers that only Ray knows."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.stacks.frames import place_of, summarize
from rljob_runtime.stacks.gather import gather
from rljob_runtime.stacks.register import VARIABLE, root
from rljob_runtime.stacks.service_loops import SERVICE_LOOPS
from rljob_runtime.trainer import WORKER_HOOK

NAME = "stalled-1-attempt-1"
SECONDS = 60.0
RANK = """
import sys, threading
import torch, torch.distributed
from rljob_runtime.stacks.register import register


def load_the_next_batch():
    threading.Event().wait()


register()
torch.distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=int(sys.argv[2]), world_size=2)
print("joined", flush=True)
if sys.argv[2] == "1":
    load_the_next_batch()
torch.distributed.all_reduce(torch.ones(1))
"""


@pytest.fixture
def short_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a TMPDIR that is short enough for Ray's sockets. pytest has already chosen its own."""
    assert tmp_path.is_dir()
    with tempfile.TemporaryDirectory(prefix="rls-", dir="/tmp") as folder:
        monkeypatch.setattr(tempfile, "tempdir", folder)
        monkeypatch.setenv("TMPDIR", folder)
        monkeypatch.setenv(VARIABLE, NAME)
        yield folder


@pytest.mark.usefixtures("short_folder")
def test_the_rank_that_never_enters_a_collective_is_found(tmp_path: Path) -> None:
    ranks = []
    try:
        for rank in ("0", "1"):
            words = [sys.executable, "-c", RANK, str(tmp_path / "store"), rank]
            environment = {**os.environ, "RANK": rank}
            ranks.append(subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True))
        assert [process.stdout and process.stdout.readline() for process in ranks] == ["joined\n"] * 2
        first, second = (process.pid for process in ranks)
        waits = f"rank 0 (pid {first} on here) waits in all_reduce (torch/distributed/distributed_c10d.py:"
        missing = f"; rank 1 (pid {second} on here) is in load_the_next_batch (<string>:"
        deadline = time.monotonic() + SECONDS
        while True:  # a rank that has joined still needs to reach the line where it hangs
            told = summarize(gather(NAME, "here", SECONDS))
            if told.startswith(waits) and missing in told:
                break
            assert time.monotonic() < deadline, told
    finally:
        for process in ranks:
            process.kill()
            process.communicate()


def test_ray_lets_every_worker_of_the_job_return_its_stacks(short_folder: str) -> None:
    import ray

    from rljob_runtime import ray_cluster

    hook = {"env_vars": {VARIABLE: NAME}, "worker_process_setup_hook": WORKER_HOOK}
    ray.init(num_cpus=1, include_dashboard=False, runtime_env=hook, _temp_dir=f"{short_folder}/r")
    try:

        class Worker:
            def hang_in_the_queue(self) -> None:
                time.sleep(SECONDS)

        ranked = {"env_vars": {"RANK": "0"}}
        worker = ray.remote(num_cpus=0, runtime_env=ranked)(Worker).remote()
        worker.hang_in_the_queue.remote()
        (node,) = ray.nodes()
        deadline = time.monotonic() + SECONDS
        while True:
            task = ray_cluster.pinned(gather, node["NodeID"])  # `stacks_elsewhere` needs two nodes
            stacks = ray.get(task.remote(NAME, "there", 10.0), timeout=SECONDS)
            places = {stack.rank: place_of(stack).frame for stack in stacks if "Worker" in stack.title}
            if (frame := places.get(0)) and frame.function == "hang_in_the_queue":
                break
            assert time.monotonic() < deadline, summarize(stacks)
        assert ray_cluster.stacks_elsewhere(NAME, 10.0) == []
    finally:
        ray.shutdown()
    assert list((root() / NAME).iterdir())


def test_the_loops_in_which_threads_wait_for_work_are_still_there() -> None:
    for end, functions in SERVICE_LOOPS.items():
        package, _, inside = end.partition("/")
        spec = importlib.util.find_spec(package)
        assert spec is not None
        source = (Path(str(spec.origin)).parent / inside).read_text()
        assert [name for name in functions if f"def {name}(" not in source] == [], end


def test_nothing_else_uses_the_signal() -> None:
    for package in ("verl", "vllm", "transfer_queue"):
        spec = importlib.util.find_spec(package)
        assert spec is not None
        files = [path for path in Path(str(spec.origin)).parent.rglob("*.py") if "SIGUSR1" in path.read_text()]
        assert files == []
