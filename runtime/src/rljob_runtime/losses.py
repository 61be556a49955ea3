"""Nodes and processes without which the run cannot continue: noticed while it waits, and blamed when it raises.

The launcher's process asks Ray. What the trainer waits for may never come once a part of the run is lost, and the
errors that follow from a loss look like failures of the run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from rljob_runtime import lost_processes, ray_cluster
from rljob_runtime.contract import ExitCode
from rljob_runtime.lost_processes import LostProcess
from rljob_runtime.node_checks.preflight import suspect_of
from rljob_runtime.outcomes import (
    DEVICE_MEMORY_WORDS,
    DEVICE_OUT_OF_MEMORY,
    NODE_LOST,
    OUT_OF_MEMORY,
    PROCESS_LOST,
    LossError,
    innermost,
)

T = TypeVar("T")

POLL_SECONDS = 5.0
DRIVER_REPORT_SECONDS = 15.0
"""Time for the trainer to report a more specific cause than a lost node itself."""
PROCESS_REPORT_SECONDS = 6.0
"""The same for a lost process, which callers notice at once."""
SECOND_LOOK_SECONDS = 2.0
"""Time between two checks: the processes of a killed pod end one by one, and the raylet may be the last."""


@dataclass
class Losses:
    """What one run has lost. Used by the thread that waits, and by the one that trains."""

    nodes: Mapping[str, str]
    """Nodes that must stay: Ray's node id -> address. Filled once they have joined."""
    names: Mapping[str, str]
    """Names of the Kubernetes nodes, by address. Filled later, too."""
    trainer: Callable[[], str | None]
    """Ray's id of the actor that creates the processes of the run, once it exists."""
    spared: set[str] = field(default_factory=set)
    """Nodes of a rollout that stands apart, also those that have gone since: lost replicas are replaced."""

    def wait(self) -> LossError:
        """Wait until a node or a process is lost, and return the loss."""
        while True:
            if lost := _asked(ray_cluster.lost_nodes, self.nodes):
                time.sleep(DRIVER_REPORT_SECONDS)
                text = f"lost the worker at {', '.join(lost)}, and the run cannot continue without it"
                return LossError(NODE_LOST, text, suspect_of(lost, self.names))
            if dead := self._dead():
                time.sleep(PROCESS_REPORT_SECONDS)
                # Those of a killed pod end before its raylet.
                if not _asked(ray_cluster.silent_nodes, self.nodes):
                    return self._of(dead[0])
            time.sleep(POLL_SECONDS)

    def blame(self, error: Exception) -> None:
        """Raise LossError in place of an error of the run if a node or a process is lost."""
        cause = innermost(error)
        then = f"then the run raised {type(cause).__name__}: {cause}"
        for seconds in (0.0, SECOND_LOOK_SECONDS):
            time.sleep(seconds)
            if lost := _asked(ray_cluster.silent_nodes, self.nodes):
                text = f"lost the worker at {', '.join(lost)}; {then}"
                raise LossError(NODE_LOST, text, suspect_of(lost, self.names)) from error
        if dead := self._dead():
            loss = self._of(dead[0])
            raise LossError(loss.reason, f"{loss}; {then}", code=loss.code) from error

    def _dead(self) -> list[LostProcess]:
        self.spared.update(_asked(lost_processes.rollout_nodes))
        trainer = self.trainer()
        return [] if trainer is None else _asked(lost_processes.find, trainer, self.spared)

    def _of(self, lost: LostProcess) -> LossError:
        """Return the loss of a process, with its last lines."""
        node = f" on {name}" if (name := self.names.get(lost.address)) else ""
        text = f"{lost}{node} died; {lost_processes.last_words(lost)}"
        if any(words in text.lower() for words in DEVICE_MEMORY_WORDS):
            return LossError(DEVICE_OUT_OF_MEMORY, text, code=ExitCode.FAILED)
        return LossError(OUT_OF_MEMORY if lost.out_of_memory else PROCESS_LOST, text)


def _asked(ask: Callable[..., Collection[T]], *arguments: object) -> list[T]:
    """Return Ray's answer; nothing if Ray cannot be asked: it raises errors of its transport, or is disconnected."""
    try:
        return list(ask(*arguments))
    except Exception:  # noqa: BLE001 - what cannot be asked is not lost
        return []
