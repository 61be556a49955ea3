"""What the launcher does on every node before verl begins: check it and plan its CPUs, in one task a node.

Bounded: a node that does not answer within a minute is told as such, and the run ends with the nodes named, so that the
operator can go on without them. After the first step it looks once more at which processes keep to their plan.
"""

from __future__ import annotations

import dataclasses
import functools
import secrets
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path

from rljob_runtime import core_binding, hccl, ray_cluster
from rljob_runtime.affinity import DEVICE_CPUS_MIN
from rljob_runtime.contract import JobConfig, Platform
from rljob_runtime.files import in_time
from rljob_runtime.node_checks import evaluate, report
from rljob_runtime.node_checks.facts import NodeFacts, Request, SharedFolder
from rljob_runtime.node_checks.gather import gather
from rljob_runtime.spool import Spool

ANSWER_SECONDS = 60.0
"""For all nodes together: they answer side by side."""
NAME_SECONDS = 5.0
"""For the names of those that did not: a task that does nothing else."""
LOOK_SECONDS = 30.0
LOOK_AGAIN_SECONDS = 900.0
"""The kubelet may change a cpuset under a run; a look takes milliseconds on each node."""
POLL_SECONDS = 5.0
FOLDER_SECONDS = 10.0
"""For leaving and removing tokens: a volume may hang."""


def check(job: JobConfig, run: str, spool: Spool) -> dict[str, str]:
    """Check every node and plan its CPUs, and give the names of those with devices by their addresses.

    Raises RefusedError if a node is not fit. The spool gets the table.
    """
    folders = _leave_tokens(job)
    try:
        asked, begun = time.time(), time.monotonic()
        wanted = request(job, run, folders)
        head = _begin_on_head(wanted)
        answers = ray_cluster.on_device_nodes(gather, ANSWER_SECONDS, wanted)
        facts = [facts for facts in answers.values() if facts is not None]
        if (own := head(max(0.0, begun + ANSWER_SECONDS - time.monotonic()))) is not None:
            facts.insert(0, own)
        window, seconds = evaluate.Window(asked, time.time()), time.monotonic() - begun
        silent = _named([address for address, answer in answers.items() if answer is None])
    finally:
        _remove_tokens(folders)
    conclude(job, spool, facts, window, silent, seconds)
    return {address: answer.node for address, answer in answers.items() if answer is not None}


def suspect_of(lost: Sequence[str], names: Mapping[str, str]) -> str | None:
    """Name the node behind the addresses that are gone; several at once lost what they share, and none is to blame."""
    found = {names.get(address) for address in lost}
    return found.pop() if len(found) == 1 else None


def _named(silent: Sequence[str]) -> list[evaluate.Silent]:
    """Name nodes of which Ray knows an address: mostly a volume or a driver hangs there, and Ray itself does not."""
    if not silent:
        return []
    names, hosts = ray_cluster.on_device_nodes(hccl.node_name, NAME_SECONDS), ray_cluster.host_names()
    return [
        evaluate.Silent(name)
        if (name := names.get(address)) is not None
        else evaluate.Silent(f"{hosts.get(address, 'a node')} ({address})", is_node=False)
        for address in silent
    ]


def _begin_on_head(wanted: Request) -> Callable[[float], NodeFacts | None]:
    """Begin to check the head; the function waits so many seconds for its facts, None if they are not there by then."""
    done: Future[NodeFacts] = Future()

    def run() -> None:
        try:
            done.set_result(gather(wanted, is_head=True))
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            done.set_exception(error)

    # A thread of a pool would be waited for at the end of this process; a volume that hangs holds it for ever.
    threading.Thread(target=run, daemon=True).start()

    def wait(seconds: float) -> NodeFacts | None:
        try:
            return done.result(seconds)
        except FutureTimeoutError:
            _tell(f"the head did not answer the check within {ANSWER_SECONDS:g} s: it is not checked")
            return None

    return wait


def conclude(
    job: JobConfig,
    spool: Spool,
    facts: list[NodeFacts],
    window: evaluate.Window,
    silent: Sequence[evaluate.Silent],
    seconds: float,
) -> None:
    """Judge what the nodes said, show it, and refuse to go on if a node is not fit."""
    findings = evaluate.judge(job, facts, window, silent)
    table = report.preflight(job, facts, findings, seconds)
    _tell(report.text(table))
    spool.update_progress(preflight=table)
    evaluate.refuse(job, facts, findings)
    if job.core_binding:
        planned = report.core_binding(facts)
        for line in (*planned.plans, *planned.notes):
            _tell(f"core binding: {line}")
        spool.update_progress(core_binding=planned)


def request(job: JobConfig, run: str, folders: tuple[SharedFolder, ...]) -> Request:
    """Give what is asked of each node."""
    npu = job.platform is Platform.NPU
    return Request(
        run=run,
        devices=job.devices // job.nodes,
        with_npus=npu,
        paths=tuple(required.path for required in job.required_paths),
        folders=folders,
        model=next((required.path for required in job.required_paths if required.field == "model.path"), None),
        bind_cpus_min=(DEVICE_CPUS_MIN if npu else 1) if job.core_binding else None,
        exclusive_cpus=None if job.needs.whole_node else job.needs.cpus or 0,
    )


def watch_binding(run: str, spool: Spool, begun: Callable[[], bool]) -> None:
    """Look at every process once the run has made a step, and now and then after; runs in a thread of the launcher."""
    while not begun():
        time.sleep(POLL_SECONDS)
    while True:
        _look(run, spool)
        time.sleep(LOOK_AGAIN_SECONDS)


def start_watch(job: JobConfig, run: str, spool: Spool, attempt: int) -> None:
    """Begin to watch, if anything is bound."""
    if not job.core_binding:
        return

    def begun() -> bool:
        return spool.last_step(attempt) is not None

    threading.Thread(target=watch_binding, args=(run, spool, begun), daemon=True).start()


def _look(run: str, spool: Spool) -> None:
    try:
        answers = ray_cluster.on_device_nodes(core_binding.look, LOOK_SECONDS, run)
        current = spool.progress()
    except Exception as error:  # noqa: BLE001 - at the end of a run Ray raises that it is disconnected
        _tell(f"core binding was not looked at: {error}")
        return
    seen = [(address, one) for address, answer in answers.items() for one in answer or ()]
    strayed = [(address, one) for address, one in seen if one.strayed]
    for address, one in strayed[:8]:
        _tell(f"core binding: {one.role.value} {one.pid} at {address} may use {one.strayed} beside {one.wanted}")
    if current is None or current.core_binding is None:
        return
    counted = dataclasses.replace(
        current.core_binding, bound_processes=len(seen) - len(strayed), strayed_processes=len(strayed)
    )
    spool.write_binding(current.attempt, counted)


def _leave_tokens(job: JobConfig) -> tuple[SharedFolder, ...]:
    """Write a file into each folder that must be shared; one that the head cannot write is the claim's to tell."""
    wanted = {"checkpoint.path": job.checkpoint_path, "observability.logPath": job.log_path}
    token = secrets.token_hex(8)
    folders = []
    for field, path in wanted.items():
        if path is None or job.nodes < 1:
            continue
        folder = SharedFolder(field, path, f".rljob-preflight-{token}", token)
        if in_time(FOLDER_SECONDS, functools.partial(_write_token, folder), f"{field} {path} is not checked"):
            folders.append(folder)
    return tuple(folders)


def _write_token(folder: SharedFolder) -> None:
    Path(folder.path).mkdir(parents=True, exist_ok=True)
    (Path(folder.path) / folder.token_name).write_text(folder.token)


def _remove_tokens(folders: tuple[SharedFolder, ...]) -> None:
    for folder in folders:
        in_time(FOLDER_SECONDS, functools.partial((Path(folder.path) / folder.token_name).unlink, missing_ok=True))


def _tell(text: str) -> None:
    print(f"rljob: {text}", file=sys.stderr, flush=True)  # noqa: T201
