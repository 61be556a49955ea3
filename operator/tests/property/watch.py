"""The watches between the API server and one operator: events in order, lost, duplicated, shuffled, late, or missing.

Like kopf, it reports only watched kinds. When a cut watch reconnects, it lists the existing objects and reports nothing
about those that were deleted meanwhile.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

from doubles.selectors import matches

from rljob.cluster.kinds import WATCHED, Kind
from rljob.core.observed import Manifest

if TYPE_CHECKING:
    from doubles.fake import FakeCluster

Feed = Callable[[str, Kind, Manifest], None]
SELECTORS = {watch.kind: watch.label_selector for watch in WATCHED}


class Watch:
    """The watches of one operator at a time."""

    def __init__(self, cluster: FakeCluster) -> None:
        self.seen = 0
        """Events that the server sent."""
        self.held = False
        """Whether events are held back."""
        self.is_cut = False
        """Whether events are lost; `reconnect` lists instead."""
        self.lost: set[int] = set()
        """Numbers of lost events, counted from 1."""
        self.doubled = False
        self.shuffle: random.Random | None = None
        self.lag = 0
        """Number of events that the operator lags behind."""
        self._cluster = cluster
        self._feed: Feed | None = None
        self._pending: list[tuple[str, Kind, Manifest]] = []
        cluster.watch(self._send)

    def follow(self, feed: Feed | None) -> None:
        """Send events to another operator from now on, which has just listed everything."""
        self._pending.clear()
        self._feed = feed
        self.is_cut = False

    def release(self, *, doubled: bool = False) -> None:
        """Send held events, each twice if requested."""
        self.held = False
        if doubled:
            self._pending = [event for event in self._pending for _ in range(2)]
        self.catch_up()

    def pump(self) -> None:
        """Send the events that may be sent while the operator works."""
        if self.shuffle is not None:
            self.catch_up()

    def catch_up(self) -> bool:
        """Send all pending events; return whether there were any."""
        if self.held or not self._pending:
            return False
        if self.shuffle is not None:
            self.shuffle.shuffle(self._pending)
        while self._pending:
            self._deliver()
        return True

    def cut(self) -> None:
        """Lose the connection."""
        self.is_cut = True
        self._pending.clear()

    def reconnect(self) -> None:
        """List what exists; as in kopf, deleted objects are not reported."""
        self.is_cut = False
        for kind in SELECTORS:
            for manifest in self._cluster.objects(kind):
                self._send("LISTED", kind, manifest)

    def _send(self, event: str, kind: Kind, manifest: Manifest) -> None:
        if kind not in SELECTORS or not matches(SELECTORS[kind], manifest["metadata"].get("labels") or {}):
            return
        self.seen += 1
        if self._feed is None or self.is_cut or self.seen in self.lost:
            return
        self._pending += [(event, kind, manifest)] * (2 if self.doubled else 1)
        if self.held or self.shuffle is not None:
            return
        while len(self._pending) > self.lag:
            self._deliver()

    def _deliver(self) -> None:
        event = self._pending.pop(0)
        if self._feed is not None:
            self._feed(*event)
