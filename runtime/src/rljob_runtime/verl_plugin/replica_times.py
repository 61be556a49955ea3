"""Times of the replicas' requests between two readings; the router's clockwork without verl."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace

from rljob_runtime.figures import ReplicaWindow, RolloutWindow

Plain = dict[str, dict[str, float | int | None]]
"""What travels between the router's actor and the trainer."""


class ReplicaTimes:
    """Collects one window."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._windows: dict[str, ReplicaWindow] = {}

    def acquired(self, replica: str) -> None:
        """A request went to a replica."""
        window = self._windows.get(replica, ReplicaWindow())
        first = self._clock() if window.first_acquire is None else window.first_acquire
        self._windows[replica] = replace(window, first_acquire=first, requests=window.requests + 1)

    def released(self, replica: str) -> None:
        """A replica answered. An answer to a request of an earlier window does not count: it would stretch this one."""
        window = self._windows.get(replica)
        if window is not None:
            self._windows[replica] = replace(window, last_release=self._clock())

    def take(self, replicas: Iterable[str]) -> Plain:
        """Give the window, with an empty entry for replicas that had nothing to do, and begin a new one."""
        windows, self._windows = self._windows, {}
        return {name: asdict(windows.get(name, ReplicaWindow())) for name in replicas}


def from_plain(plain: Plain) -> RolloutWindow:
    """Read what `take` gave."""
    return RolloutWindow({name: ReplicaWindow(**values) for name, values in plain.items()})  # type: ignore[arg-type]
