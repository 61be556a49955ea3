"""Checks of every node before verl starts, and the plan of its CPUs, in one task per node.

The time is limited: a node that does not answer within a minute is reported and ends the run, so that the operator can
continue without it. After the first step, the launcher also checks which processes stay within their CPU plan.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

from rljob_runtime import ray_cluster
from rljob_runtime.contract import JobConfig, Platform, Role
from rljob_runtime.files import run_with_timeout
from rljob_runtime.fork_server import start as fork_server
from rljob_runtime.node import core_binding, hccl
from rljob_runtime.node.affinity import DEVICE_CPUS_MIN
from rljob_runtime.node_checks import evaluate, report
from rljob_runtime.node_checks.facts import NodeFacts, Request, SharedFolder
from rljob_runtime.node_checks.gather import gather
from rljob_runtime.spool.spool import Spool

ANSWER_SECONDS = 60.0
"""For all nodes together, which answer in parallel."""
NAME_SECONDS = 5.0
"""Time to find the names of nodes that did not answer, by a task that does nothing else."""
LOOK_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 900.0
"""The kubelet may change a cpuset during a run. One check takes milliseconds per node."""
POLL_SECONDS = 5.0
FOLDER_SECONDS = 10.0
"""Time to write and remove tokens, because a volume may hang."""


def check(job: JobConfig, run: str, spool: Spool) -> dict[str, str]:
    """Check every node and plan its CPUs; return the names of the nodes with devices by their addresses.

    Raises RefusedError if a node is unsuitable. The table is written to the spool.
    """
    folders = _leave_tokens(job)
    try:
        asked, begun = time.time(), time.monotonic()
        wanted = request(job, run, folders)
        head = _begin_on_head(wanted)
        of_roles = {role: of_role(wanted, job, role) for role in (None, *Role)}
        answers = ray_cluster.on_device_nodes(_gather, ANSWER_SECONDS, of_roles)
        facts = [facts for facts in answers.values() if facts is not None]
        if (own := head(max(0.0, begun + ANSWER_SECONDS - time.monotonic()))) is not None:
            facts.insert(0, own)
        window, seconds = evaluate.Window(asked, time.time()), time.monotonic() - begun
        silent = _named([address for address, answer in answers.items() if answer is None])
    finally:
        _remove_tokens(folders)
    conclude(job, spool, facts, window, silent, seconds)
    return {address: answer.node for address, answer in answers.items() if answer is not None}


def _gather(wanted: Mapping[Role | None, Request]) -> NodeFacts:
    """Gather a node's facts, after starting its fork server: this task is the first worker of the job on its node."""
    fork_server.begin(os.environ)
    role = ray_cluster.own_role()
    return dataclasses.replace(gather(wanted[role]), role=role)


def suspect_of(lost: Sequence[str], names: Mapping[str, str]) -> str | None:
    """Return the node behind the lost addresses; None if several were lost, because the cause may be shared."""
    found = {names.get(address) for address in lost}
    return found.pop() if len(found) == 1 else None


def _named(silent: Sequence[str]) -> list[evaluate.Unresponsive]:
    """Name nodes that are known by their address. Usually a volume or a driver hangs there while Ray still responds."""
    if not silent:
        return []
    names, hosts = ray_cluster.on_device_nodes(hccl.node_name, NAME_SECONDS), ray_cluster.host_names()
    return [
        evaluate.Unresponsive(name)
        if (name := names.get(address)) is not None
        else evaluate.Unresponsive(f"{hosts.get(address, 'a node')} ({address})", is_node=False)
        for address in silent
    ]


def _begin_on_head(wanted: Request) -> Callable[[float], NodeFacts | None]:
    """Start checking the head; return a function that waits for its facts and returns None after a timeout."""
    done: Future[NodeFacts] = Future()

    def run() -> None:
        try:
            done.set_result(gather(wanted, is_head=True))
        except BaseException as error:  # noqa: BLE001 - raised again by the waiting caller
            done.set_exception(error)

    # Not a thread pool: the process would wait at exit for a thread that hangs on a volume.
    threading.Thread(target=run, daemon=True).start()

    def wait(seconds: float) -> NodeFacts | None:
        try:
            return done.result(seconds)
        except FutureTimeoutError:
            _log(f"the head was not checked: it did not answer within {ANSWER_SECONDS:g} s")
            return None

    return wait


def conclude(
    job: JobConfig,
    spool: Spool,
    facts: list[NodeFacts],
    window: evaluate.Window,
    silent: Sequence[evaluate.Unresponsive],
    seconds: float,
) -> None:
    """Evaluate the nodes' answers, publish the table, and refuse the run if a node is unsuitable."""
    findings = evaluate.evaluate(job, facts, window, silent)
    table = report.preflight(job, facts, findings, seconds)
    _log(report.text(table))
    spool.update_progress(preflight=table)
    evaluate.refuse(job, facts, findings)
    if job.core_binding:
        planned = report.core_binding(facts)
        for line in (*planned.plans, *planned.notes):
            _log(f"core binding: {line}")
        spool.update_progress(core_binding=planned)


def request(job: JobConfig, run: str, folders: tuple[SharedFolder, ...]) -> Request:
    """Return the request to each node."""
    npu = job.platform is Platform.NPU
    return Request(
        run=run,
        devices=job.devices_per_node,
        with_npus=npu,
        paths=tuple(required.path for required in job.required_paths),
        folders=folders,
        model=next((required.path for required in job.required_paths if required.field == "model.path"), None),
        bind_cpus_min=(DEVICE_CPUS_MIN if npu else 1) if job.core_binding else None,
        exclusive_cpus=None if job.needs.whole_node else job.needs.cpus or 0,
    )


def of_role(wanted: Request, job: JobConfig, role: Role | None) -> Request:
    """Return the request to a node of a role: what it reads, and may alone have on its volumes.

    Nodes that train read everything, also the judge's tokenizer.
    """
    field = {Role.ROLLOUT: "model.path", Role.JUDGE: "reward.judge.path"}.get(role) if role else None
    if field is None:
        return wanted
    paths = tuple(required.path for required in job.required_paths if required.field == field)
    return dataclasses.replace(wanted, paths=paths, folders=(), model=None if role is Role.JUDGE else wanted.model)


def watch_binding(run: str, spool: Spool, begun: Callable[[], bool]) -> None:
    """Check every process after the run's first step and periodically after; runs in a thread of the launcher."""
    while not begun():
        time.sleep(POLL_SECONDS)
    while True:
        _look(run, spool)
        time.sleep(LOOK_AGAIN_SECONDS)


def start_watch(job: JobConfig, run: str, spool: Spool, attempt: int) -> None:
    """Start checking, if anything is bound."""
    if not job.core_binding:
        return

    def begun() -> bool:
        return spool.last_step(attempt) is not None

    threading.Thread(target=watch_binding, args=(run, spool, begun), daemon=True).start()


def _look(run: str, spool: Spool) -> None:
    try:
        answers = ray_cluster.on_device_nodes(core_binding.look, LOOK_SECONDS, run)
        current = spool.progress()
    except Exception as error:  # noqa: BLE001 - Ray raises at the end of a run, because it is disconnected
        _log(f"core binding was not checked: {error}")
        return
    seen = [(address, one) for address, answer in answers.items() for one in answer or ()]
    strayed = [(address, one) for address, one in seen if one.strayed]
    for address, one in strayed[:8]:
        _log(f"core binding: {one.role.value} {one.pid} at {address} may use {one.strayed} in addition to {one.wanted}")
    if current is None or current.core_binding is None:
        return
    counted = dataclasses.replace(
        current.core_binding, bound_processes=len(seen) - len(strayed), strayed_processes=len(strayed)
    )
    spool.write_binding(current.attempt, counted)


def _leave_tokens(job: JobConfig) -> tuple[SharedFolder, ...]:
    """Write a file into each folder that must be shared. The claim reports a folder that the head cannot write."""
    wanted = {"checkpoint.path": job.checkpoint_path, "observability.logPath": job.log_path}
    token = secrets.token_hex(8)
    folders = []
    for field, path in wanted.items():
        if path is None or job.nodes < 1:
            continue
        folder = SharedFolder(field, path, f".rljob-preflight-{token}", token)
        if run_with_timeout(FOLDER_SECONDS, functools.partial(_write_token, folder), f"{field} {path} was not checked"):
            folders.append(folder)
    return tuple(folders)


def _write_token(folder: SharedFolder) -> None:
    Path(folder.path).mkdir(parents=True, exist_ok=True)
    (Path(folder.path) / folder.token_name).write_text(folder.token)


def _remove_tokens(folders: tuple[SharedFolder, ...]) -> None:
    for folder in folders:
        run_with_timeout(
            FOLDER_SECONDS, functools.partial((Path(folder.path) / folder.token_name).unlink, missing_ok=True)
        )


def _log(text: str) -> None:
    print(f"rljob: {text}", file=sys.stderr, flush=True)  # noqa: T201
