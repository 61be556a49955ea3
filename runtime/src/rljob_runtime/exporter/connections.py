"""Bounds the connections of a server that has a thread for each: in total, by peer, and in time.

Anybody on the pods' network may connect. A connection that waits for its client can be closed for a newer one, so idle
connections, of however many peers, never keep the operator or Prometheus out. A new one has a moment to send its
request, and one that is being answered is closed only if nothing idles and it takes its answer too slowly.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

TOTAL = 64
CLOSING = 4
"""Connections that may be closing beside these: their threads end as soon as they run."""
PER_PEER = 8
"""The operator opens at most four connections to a head at once, Prometheus one."""
GRACE_SECONDS = 0.25
"""A client sends its request with the connection."""
ANSWER_SECONDS = 1.0
"""An answer takes milliseconds, unless the client does not read it."""
PATIENCE_SECONDS = 2.0
"""How long a new connection may wait for a place before it is refused."""
STATE_SECONDS = 15.0
"""A request arrives, or is answered, within this time, whatever the client sends meanwhile."""


@dataclass
class Connection:
    """A connection that has a thread."""

    socket: socket.socket
    peer: str
    since: float
    """When it began to wait for its client, or to be answered."""
    answering: bool = False
    closing: bool = False


class Connections:
    """The connections of one server. All methods may be called from any thread."""

    def __init__(
        self, total: int = TOTAL, per_peer: int = PER_PEER, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._total, self._per_peer, self._monotonic = total, per_peer, monotonic
        self._open: dict[int, Connection] = {}
        """By identity of the socket, the oldest first."""
        self._left = threading.Condition()

    def __len__(self) -> int:
        """Return how many connections have a thread."""
        return len(self._open)

    def admit(self, request: socket.socket, peer: str) -> bool:
        """Add a connection, in the place of one that idles if there is no other; report whether there is a place.

        Only a peer without a connection waits for one: this is the thread that accepts connections, and others wait
        behind those of a peer that opens a thousand.
        """
        end = self._monotonic() + PATIENCE_SECONDS
        with self._left:
            while True:
                living = [each for each in self._open.values() if not each.closing]
                rivals = [each for each in living if each.peer == peer]
                if len(rivals) >= self._per_peer:
                    free = self._close_idle(rivals)
                else:
                    free = len(living) < self._total or self._close_idle(living)
                if free and len(self._open) < self._total + CLOSING:
                    self._open[id(request)] = Connection(request, peer, self._monotonic())
                    return True
                if rivals or self._monotonic() >= end:
                    return False
                self._left.wait(GRACE_SECONDS / 10)

    def rest(self, request: socket.socket) -> None:
        """Note that a connection waits for its client."""
        self._change(request, answering=False)

    def answer(self, request: socket.socket) -> None:
        """Note that a request has arrived whole and is being answered."""
        self._change(request, answering=True)

    def leave(self, request: socket.socket) -> None:
        """Remove a connection: its thread ends."""
        with self._left:
            self._open.pop(id(request), None)
            self._left.notify_all()

    def expire(self) -> None:
        """Close connections that neither complete a request nor take an answer."""
        with self._left:
            for each in self._open.values():
                if not each.closing and self._monotonic() - each.since > STATE_SECONDS:
                    _close(each)

    def _close_idle(self, among: Iterable[Connection]) -> bool:
        """Close the connection that idles longest; report whether there is one."""
        found = list(among)
        for answering, least in ((False, GRACE_SECONDS), (True, ANSWER_SECONDS)):
            oldest = min((each for each in found if each.answering is answering), key=_since, default=None)
            if oldest is not None and self._monotonic() - oldest.since >= least:
                _close(oldest)
                return True
        return False

    def _change(self, request: socket.socket, *, answering: bool) -> None:
        with self._left:
            if (found := self._open.get(id(request))) is not None:
                found.answering, found.since = answering, self._monotonic()


def _since(connection: Connection) -> float:
    return connection.since


def _close(connection: Connection) -> None:
    """Wake the connection's thread, which closes the socket and leaves."""
    connection.closing = True
    with contextlib.suppress(OSError):
        connection.socket.shutdown(socket.SHUT_RDWR)
