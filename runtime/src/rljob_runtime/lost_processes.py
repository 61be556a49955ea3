"""Processes of the run that died by themselves: a rank, the actor of an engine, one that generates or scores.

Ray restarts none of them, and whatever waits for one may wait for ever, or until `deadlines.progressSeconds`. Only
those count that the trainer has created: an actor that a tool or a reward function creates is that code's own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob_runtime import ray_cluster
from rljob_runtime.contract import ROLE_RESOURCES, Role
from rljob_runtime.outcomes import DEVICE_MEMORY_WORDS

BY_ITSELF = "WORKER_DIED"
"""Ray's reason for an actor that was neither killed nor released, and whose node lives (common.proto,
ActorDiedErrorContext, 2.60)."""
INTENDED = ("INTENDED_", "exit_actor()")
"""In Ray's message about an actor that ended on request, or with status 0 (common.proto, WorkerExitType)."""
OUT_OF_MEMORY = "oom_context"
"""Ray's memory monitor has ended the process."""
LINES, LINE_CHARACTERS, TAIL_BYTES = 8, 200, 16 << 10
LOG_SECONDS = 4.0
MARKS = (":job_id:", ":actor_name:", ":task_name:")
"""Lines that Ray writes for its log monitor."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class LostProcess:
    """An actor of the run."""

    kind: str
    """Name of its class."""
    pid: int
    node: str
    """Ray's id of its node."""
    address: str
    out_of_memory: bool

    def __str__(self) -> str:
        """Return its name and place."""
        return f"{self.kind} (pid {self.pid} at {self.address})"


def rollout_nodes() -> set[str]:
    """Return the ids of the nodes of a rollout that stands apart."""
    return set(ray_cluster.device_nodes(ROLE_RESOURCES[Role.ROLLOUT]))


def find(trainer: str, spared: Collection[str]) -> list[LostProcess]:
    """Return the actors of an actor, given by Ray's id, that died by themselves, but for those on the nodes `spared`.

    The one that died first comes first: others may have died of its loss.
    """
    import ray
    from ray._private.state import state

    owner = _place(state.actor_table(trainer)["Address"])
    dead = state.actor_table(None, ray.JobID.from_hex(ray.get_runtime_context().get_job_id()), "DEAD")
    rows = [row for row in dead.values() if _place(row["OwnerAddress"]) == owner and _died_by_itself(row)]
    return [
        _process(row)
        for row in sorted(rows, key=lambda row: int(row["EndTime"]))
        if row["Address"]["NodeID"] not in spared
    ]


def _place(address: Mapping[str, Any]) -> tuple[str, int]:
    return str(address["IPAddress"]), int(address["Port"])


def _process(row: Mapping[str, Any]) -> LostProcess:
    place, kind = row["Address"], str(row["ActorClassName"]).rpartition(".")[2]
    memory = row["DeathCause"].WhichOneof("context") == OUT_OF_MEMORY
    return LostProcess(kind, int(row["Pid"]), place["NodeID"], place["IPAddress"], memory)


def _died_by_itself(row: Mapping[str, Any]) -> bool:
    cause = row["DeathCause"]
    if cause.WhichOneof("context") == OUT_OF_MEMORY:
        return True
    if cause.WhichOneof("context") != "actor_died_error_context":
        return False
    died = cause.actor_died_error_context
    reason = type(died).Reason.Name(died.reason)
    return bool(reason == BY_ITSELF and not any(words in died.error_message for words in INTENDED))


def last_words(lost: LostProcess) -> str:
    """Return the last lines of a process's log, if its node returns them in time."""
    import ray
    from ray._private.worker import global_worker

    try:
        folder = f"{global_worker.node.get_session_dir_path()}/logs"
        task = ray_cluster.pinned(last_lines, lost.node).remote(folder, lost.pid)
        lines = ray.get(task, timeout=LOG_SECONDS)
    except Exception as error:  # noqa: BLE001 - Ray raises errors of its transport, and the process is lost anyway
        return f"its log cannot be read ({type(error).__name__})"
    return f"its last lines: {' | '.join(lines)}" if lines else "it wrote nothing"


def last_lines(folder: str, pid: int) -> list[str]:
    """Return the last lines that a process of Ray wrote on this node, errors last, after one about device memory."""
    found: list[str] = []
    for ending in ("out", "err"):
        for log in sorted(Path(folder).glob(f"worker-*-{pid}.{ending}")):
            with log.open("rb") as file:
                file.seek(max(log.stat().st_size - TAIL_BYTES, 0))
                text = COLOURS.sub("", file.read(TAIL_BYTES).decode(errors="replace"))
            lines = [line.strip()[:LINE_CHARACTERS] for line in text.splitlines()]
            found += [line for line in lines if line and not line.startswith(MARKS)]
    shown = found[-LINES:]
    memory = [line for line in found[:-LINES] if any(words in line.lower() for words in DEVICE_MEMORY_WORDS)]
    return [*memory[-1:], *shown]
