"""Times of the replicas' requests between two readings; the router's clockwork without verl."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from rljob_runtime.step_metrics import TAIL, ReplicaWindow, RolloutWindow

Plain = Mapping[str, Any]
"""What travels between the router's actor and the trainer: a RolloutWindow of plain values."""


class ReplicaTimes:
    """Collects one window."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[str, ReplicaWindow] = {}
        self._answers = array("d")

    def acquired(self, replica: str) -> None:
        """A request went to a replica."""
        window = self._windows.get(replica, ReplicaWindow())
        first = self._clock() if window.first_acquire is None else window.first_acquire
        self._windows[replica] = replace(window, first_acquire=first, requests=window.requests + 1)

    def released(self, replica: str) -> None:
        """A replica answered. An answer to a request of an earlier window does not count: it would stretch this one."""
        window = self._windows.get(replica)
        if window is not None:
            now = self._clock()
            self._windows[replica] = replace(window, last_release=now)
            self._answers.append(now)

    def take(self, replicas: Iterable[str]) -> Plain:
        """Give the window, with an empty entry for replicas that had nothing to do, and begin a new one."""
        windows, self._windows = self._windows, {}
        answers, self._answers = self._answers, array("d")
        # They came in order of time.
        tail_begin = answers[math.ceil(TAIL * len(answers)) - 1] if answers else None
        return {
            "replicas": {name: asdict(windows.get(name, ReplicaWindow())) for name in replicas},
            "tail_begin": tail_begin,
        }


def from_plain(plain: Plain) -> RolloutWindow:
    """Read what `take` gave."""
    replicas = {name: ReplicaWindow(**values) for name, values in plain["replicas"].items()}
    return RolloutWindow(replicas, plain["tail_begin"])
