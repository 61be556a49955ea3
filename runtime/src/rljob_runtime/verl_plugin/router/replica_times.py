"""Record the times of the replicas' requests between two readings. Used by the router; independent of verl."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, replace
from typing import Any

from rljob_runtime.spool.step_metrics import TAIL, ReplicaWindow, RolloutWindow

Plain = Mapping[str, Any]
"""A RolloutWindow as plain values, which the router's actor sends to the trainer."""


class ReplicaTimes:
    """Records one window."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[str, ReplicaWindow] = {}
        self._answers = array("d")

    def acquired(self, replica: str) -> None:
        """Record a request to a replica."""
        window = self._windows.get(replica, ReplicaWindow())
        first = self._clock() if window.first_acquire is None else window.first_acquire
        self._windows[replica] = replace(window, first_acquire=first, requests=window.requests + 1)

    def released(self, replica: str) -> None:
        """Record a replica's response. Responses to requests of an earlier window are ignored."""
        window = self._windows.get(replica)
        if window is not None:
            now = self._clock()
            self._windows[replica] = replace(window, last_release=now)
            self._answers.append(now)

    def take(self, replicas: Iterable[str]) -> Plain:
        """Return the window, with an empty entry for each replica without requests, and start a new one."""
        windows, self._windows = self._windows, {}
        answers, self._answers = self._answers, array("d")
        # The list is already in order of time.
        tail_begin = answers[math.ceil(TAIL * len(answers)) - 1] if answers else None
        return {
            "replicas": {name: asdict(windows.get(name, ReplicaWindow())) for name in replicas},
            "tail_begin": tail_begin,
        }


def from_plain(plain: Plain) -> RolloutWindow:
    """Parse the result of `take`."""
    replicas = {name: ReplicaWindow(**values) for name, values in plain["replicas"].items()}
    return RolloutWindow(replicas, plain["tail_begin"])
