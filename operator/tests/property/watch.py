"""What lies between the API server and one operator: events in order, or lost, doubled, shuffled, late, or none at all.

As kopf does, it tells of the watched kinds only, and when a watch that was cut begins anew it lists what is there and
says nothing of what has gone meanwhile.
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
        """Events that the server had to tell."""
        self.held = False
        """They come later."""
        self.is_cut = False
        """They never come; `reconnect` lists instead."""
        self.lost: set[int] = set()
        """Numbers of events that never come, from 1."""
        self.doubled = False
        self.shuffle: random.Random | None = None
        self.lag = 0
        """How many events the operator is behind while it works."""
        self._cluster = cluster
        self._feed: Feed | None = None
        self._pending: list[tuple[str, Kind, Manifest]] = []
        cluster.watch(self._tell)

    def follow(self, feed: Feed | None) -> None:
        """Tell another operator from now on, which has just listed everything."""
        self._pending.clear()
        self._feed = feed
        self.is_cut = False

    def release(self, *, doubled: bool = False) -> None:
        """Tell what was held back, each event twice if so wished."""
        self.held = False
        if doubled:
            self._pending = [event for event in self._pending for _ in range(2)]
        self.catch_up()

    def pump(self) -> None:
        """Tell what may be told while the operator works."""
        if self.shuffle is not None:
            self.catch_up()

    def catch_up(self) -> bool:
        """Tell all that is pending; whether there was something."""
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
        """List what is there; kopf tells nothing of what has gone."""
        self.is_cut = False
        for kind in SELECTORS:
            for manifest in self._cluster.objects(kind):
                self._tell("LISTED", kind, manifest)

    def _tell(self, event: str, kind: Kind, manifest: Manifest) -> None:
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
