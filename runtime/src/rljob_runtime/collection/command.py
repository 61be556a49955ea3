"""`python -m rljob_runtime collect`: collect the logs of the newest attempt from all nodes. Prints a `Collection`.

It runs on the head: as a process of the launcher when an attempt has failed, or by exec for `rljob logs --collect`. It
connects to Ray as a driver of its own. One collection runs at a time; it replaces what an earlier one left.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import os
import secrets
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rljob_runtime import ray_cluster
from rljob_runtime.collection import diagnosis
from rljob_runtime.collection.node import NODES, PARSED, TOKEN, Request
from rljob_runtime.collection.node import collect as collect_here
from rljob_runtime.command.trainer import RAY_JOB_CONFIG
from rljob_runtime.contract import Collection, ContractError, JobConfig, NodeLogs, PodVariable, head_paths
from rljob_runtime.files import run_with_timeout, write_atomically
from rljob_runtime.spool.mirror import Mirror
from rljob_runtime.spool.spool import Spool
from rljob_runtime.stacks import stall
from rljob_runtime.stacks.frames import summarize
from rljob_runtime.stacks.register import run_name

DIAGNOSIS = "diagnosis"
RESULT = "collection.json"
LOCK = "collect.lock"
NODE_BYTES = 256 << 20
"""Most bytes that are copied of one node: 400 logs of CANN with less than a megabyte each, and the driver's."""
TOTAL_BYTES = 8 << 30
"""Most bytes for all nodes together, so that a job of many nodes does not fill its log volume: 128 nodes get 64 MiB
each."""
NODES_SHARE = 0.75
"""Part of the time for the nodes. ascend-fd gets the rest for the logs of all of them."""
CONNECT_SECONDS = 6.0
TARGET_SECONDS = 5.0
"""Time to prepare a folder on the volume, which may hang."""


class CollectError(RuntimeError):
    """Nothing can be collected."""


@dataclass
class _Answers:
    nodes: list[NodeLogs] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def run(environ: Mapping[str, str], spool: Path, seconds: float, *, live: bool) -> int:
    """Collect, print the result as the last line, and return the exit code."""
    # Otherwise Ray takes this process for a part of the attempt's submission.
    os.environ.pop(RAY_JOB_CONFIG, None)
    try:
        with _alone(spool):
            job = Path(environ.get(PodVariable.CONFIG) or head_paths().config)
            done = collect(JobConfig.from_json(job.read_bytes()), Spool(spool), seconds, live=live)
    except (CollectError, ContractError, OSError) as error:
        print(f"rljob: nothing is collected: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return 1
    sys.stdout.write(f"\n{done.to_json().decode()}\n")
    sys.stdout.flush()
    return 0


def collect(job: JobConfig, spool: Spool, seconds: float, *, live: bool) -> Collection:
    """Collect the logs of the newest attempt. With `live` also the stacks of its processes."""
    begun = time.monotonic()
    deadline = begun + seconds
    progress = spool.progress()
    if progress is None:
        raise CollectError("no attempt has begun in this cluster")
    folder = Mirror(job, progress.attempt).folder
    if folder is None:
        raise CollectError("the job has no log volume; set observability.logPath")
    name = run_name(job, progress.attempt)
    share = min(NODE_BYTES, TOTAL_BYTES // (job.nodes + 1))
    time_of_nodes = NODES_SHARE * (deadline - time.monotonic())
    token = secrets.token_hex(8)
    if not run_with_timeout(TARGET_SECONDS, lambda: _prepare(folder, token), f"cannot write to {folder}"):
        raise CollectError(f"the log volume does not take files in {folder}")
    request = Request(name, str(folder), token, progress.start_time, time_of_nodes, share, live=live, settle=not live)
    answers = _everywhere(request)
    stacks = _save_stacks(name, folder) if live else 0
    told = ""
    if diagnosis.is_installed():
        told, problem = diagnosis.diagnose(folder / PARSED, folder / DIAGNOSIS, deadline - time.monotonic())
        answers.notes += [problem] if problem else []
    taken = time.monotonic() - begun
    done = Collection(
        progress.attempt,
        str(folder),
        taken,
        tuple(answers.nodes),
        tuple(answers.silent),
        stacks,
        told,
        tuple(answers.notes),
    )
    (folder / NODES / TOKEN).unlink(missing_ok=True)
    write_atomically(folder / RESULT, done.to_json())
    return done


def _prepare(folder: Path, token: str) -> None:
    for name in (NODES, PARSED, DIAGNOSIS):
        shutil.rmtree(folder / name, ignore_errors=True)
    (folder / NODES).mkdir(parents=True, exist_ok=True)
    (folder / PARSED).mkdir(exist_ok=True)
    (folder / NODES / TOKEN).write_text(token)


def _everywhere(request: Request) -> _Answers:
    """Collect on the head and on every node with devices, in parallel."""
    answers = _Answers()
    own: list[NodeLogs] = []
    ends = time.monotonic() + request.seconds
    connected, is_device_node = _connect()

    def here() -> None:
        # The launcher itself is one of the head's processes.
        own.append(collect_here(dataclasses.replace(request, settle=False)))

    def elsewhere() -> None:
        found = ray_cluster.on_device_nodes(collect_here, max(0.0, ends - time.monotonic()), request)
        answers.nodes += [logs for logs in found.values() if logs is not None]
        answers.silent += sorted(address for address, logs in found.items() if logs is None)

    waits = [] if is_device_node else [_in_thread(here, "the head", answers.notes)]
    if connected:
        waits.append(_in_thread(elsewhere, "the worker nodes", answers.notes))
    else:
        answers.notes.append(f"the worker nodes: Ray accepted no connection within {CONNECT_SECONDS:g} s")
    for wait in waits:
        wait(max(0.0, ends - time.monotonic()))
    answers.nodes += [logs for logs in own if logs.files or logs.notes]
    answers.nodes.sort(key=lambda logs: logs.node)
    return answers


def _in_thread(do: Callable[[], None], what: str, notes: list[str]) -> Callable[[float], None]:
    """Start `do` in a thread; return a function that waits for it, and notes what went wrong."""
    failed: list[Exception] = []

    def attempt() -> None:
        try:
            do()
        except Exception as error:  # noqa: BLE001 - Ray raises errors of its own
            failed.append(error)

    thread = threading.Thread(target=attempt, daemon=True)
    thread.start()

    def wait(seconds: float) -> None:
        thread.join(seconds)
        if failed or thread.is_alive():
            notes.append(f"{what}: {failed[0] if failed else 'no answer in time'}")

    return wait


def _connect() -> tuple[bool, bool]:
    """Connect to Ray; return whether it succeeded, and whether this node has devices, as in a local run."""
    seen: list[bool] = []

    def begin() -> None:
        import ray

        ray.init(address="auto", namespace="rljob-collect", logging_level="error", log_to_driver=False)
        seen.append(ray.get_runtime_context().get_node_id() in ray_cluster.device_nodes())

    wait = _in_thread(begin, "Ray", [])
    wait(CONNECT_SECONDS)
    return bool(seen), any(seen)


def _save_stacks(run: str, folder: Path) -> int:
    stacks = stall.gather_everywhere(run)
    if not stacks:
        return 0
    line = summarize(stacks)
    saved = run_with_timeout(stall.WRITE_SECONDS, lambda: stall.write(folder, line, stacks), "cannot save the stacks")
    return len(stacks) if saved else 0


@contextlib.contextmanager
def _alone(spool: Path) -> Iterator[None]:
    with (spool / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CollectError("another collection is running; try again when it has ended") from None
        yield
