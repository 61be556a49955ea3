"""How long replicas take to answer a call that costs nothing while they generate.

A replica is one Ray actor with a limit of concurrent calls, which requests and control calls share (replica.py). If
requests fill it, `abort_all_requests` begins when an earlier response ends, and a stop waits for it. The trainer asks
each replica for its address from time to time during a rollout; the slowest answer is a metric of the step.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from rljob_runtime.spool.step_metrics import CONTROL_CALL_SECONDS

EVERY_SECONDS = 5.0
"""Time between two questions to the same replica."""

Ask = Callable[[], "Future[Any]"]
"""Asks one replica."""


class ControlCalls:
    """Asks replicas and keeps the slowest answer of a step. Answers arrive in threads of Ray."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._asked: dict[int, float] = {}
        """Time of the last question, by replica."""
        self._unanswered: dict[int, float] = {}
        self._slowest: float | None = None

    def poll(self, replicas: Sequence[Ask]) -> None:
        """Ask each replica that has answered and was not asked for a while. Never waits."""
        for number, ask in enumerate(replicas):
            now = self._clock()
            with self._lock:
                recently = now - self._asked.get(number, now - EVERY_SECONDS) < EVERY_SECONDS
                if recently or number in self._unanswered:
                    continue
                self._asked[number] = self._unanswered[number] = now
            ask().add_done_callback(functools.partial(self._answered, number))

    def _answered(self, number: int, answer: Future[Any]) -> None:
        failed = answer.cancelled() or answer.exception() is not None
        with self._lock:
            asked = self._unanswered.pop(number)
            if not failed:  # a replica that is gone answers nothing
                self._slowest = max(self._slowest or 0.0, self._clock() - asked)

    def take(self) -> dict[str, float]:
        """Return the metric since the last call and start again. A question without an answer counts up to now."""
        with self._lock:
            now, slowest, self._slowest = self._clock(), self._slowest, None
            seconds = [now - asked for asked in self._unanswered.values()]
            if slowest is not None:
                seconds.append(slowest)
            self._asked.clear()
        return {CONTROL_CALL_SECONDS: max(seconds)} if seconds else {}
