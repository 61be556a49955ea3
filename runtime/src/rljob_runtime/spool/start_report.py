"""Publishes what the start of an attempt is doing, for people who wait for its first step.

The launcher reports its own stages, and then the process of the training loop those of the trainer. Both write the
attempt's `start.json`, never at the same time: the training loop begins after the launcher has reported that it does. A
report that cannot be written is lost, and the start continues.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rljob_runtime.contract import PassedStage, StartProgress, StartStage
from rljob_runtime.spool.spool import Spool

COUNT_SECONDS = 1.0
"""Longest time between two looks at tasks that are counted."""

Counted = tuple[StartStage, Sequence[Any]]
"""A stage, and one Ray task per rank that ends with it."""


@dataclass
class StartReport:
    """The reports of one process. Any thread may call it."""

    spool: Spool
    attempt: int
    _last: StartProgress | None = field(default=None, init=False)
    _over: bool = field(default=False, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)

    def at(self, stage: StartStage, done: int | None = None, total: int | None = None) -> None:
        """Report a stage, or how far it is."""
        with self._lock:
            self._write(stage, done, total)

    def is_at(self, stage: StartStage) -> bool:
        """Return whether this stage was reported last."""
        with self._lock:
            return self._is_at(stage)

    def further(self, stage: StartStage, done: int, total: int) -> bool:
        """Report how far a stage is, unless the start has left it. Return whether it has not."""
        with self._lock:
            if self._is_at(stage):
                self._write(stage, done, total)
                return True
            return False

    def move(self, left: StartStage, stage: StartStage, total: int) -> bool:
        """Report a stage that is counted, if the start is still in the stage before. Return whether it was."""
        with self._lock:
            if self._is_at(left):
                self._write(stage, 0, total)
                return True
            return False

    def finish(self) -> None:
        """Report nothing more: the first step is complete."""
        with self._lock:
            self._over = True

    def _is_at(self, stage: StartStage) -> bool:
        return not self._over and self._last is not None and self._last.stage == stage

    def _write(self, stage: StartStage, done: int | None, total: int | None) -> None:
        # The process before this one has reported the first stages.
        before = self._last or self.spool.start(self.attempt)
        again = before is not None and before.stage == stage
        begun = before.begun if before is not None and again else time.time()
        passed = () if before is None else before.passed
        if before is not None and not again:
            passed = (*passed, PassedStage(before.stage, before.begun))
        if done is not None and total is not None:
            # A cluster may have more nodes and devices than the job uses.
            done = min(done, total)
        kept = tuple(entry for entry in passed if entry.stage != stage)
        report = StartProgress(stage.value, begun, done, total, kept)
        if self._over or report == self._last:
            return
        self._last = report
        with contextlib.suppress(OSError):
            self.spool.write_start(self.attempt, report)


def count_tasks(report: StartReport, *stages: Counted) -> threading.Thread:
    """Report in a thread how many Ray tasks of each stage have ended, for as long as the start is in these stages.

    The start is in the first of them. The thread reports when it has passed one; the caller waits for the tasks itself.
    """
    import ray

    def wait(pending: Sequence[Any]) -> Sequence[Any]:
        # The results stay where they are: only their number counts.
        left: Sequence[Any] = ray.wait(
            list(pending), num_returns=len(pending), timeout=COUNT_SECONDS, fetch_local=False
        )[1]
        return left

    thread = threading.Thread(target=count, args=(report, stages, wait), daemon=True)
    thread.start()
    return thread


def count(report: StartReport, stages: Sequence[Counted], wait: Callable[[Sequence[Any]], Sequence[Any]]) -> None:
    """Report how many tasks of each stage have ended. `wait` returns, after a moment, those that have not."""
    left: StartStage | None = None
    for stage, tasks in stages:
        total, pending = len(tasks), tasks
        if left is not None and not report.move(left, stage, total):
            return
        while pending:
            pending = wait(pending)
            if not report.further(stage, total - len(pending), total):
                return
        left = stage
