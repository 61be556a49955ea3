"""A sum over all ranks, by TCP to rank 0: as in a process group, a rank that hangs keeps all others waiting."""

from __future__ import annotations

import socket
import struct

NUMBER = struct.Struct("!q")
JOIN_SECONDS = 60.0


class Group:
    """One rank's place in it; every rank calls `all_reduce` once a step."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self._listener = socket.create_server(("", 0)) if rank == 0 else None
        self._peers: list[socket.socket] = []

    @property
    def port(self) -> int:
        """Where rank 0 listens."""
        if self._listener is None:
            raise AssertionError("only rank 0 listens")
        return int(self._listener.getsockname()[1])

    def join(self, address: str, port: int) -> None:
        """Connect this rank; returns when all are there."""
        if self._listener is None:
            peer = socket.create_connection((address, port), JOIN_SECONDS)
            peer.settimeout(None)
            self._peers = [peer]
            return
        self._listener.settimeout(JOIN_SECONDS)
        for _ in range(self._ranks - 1):
            peer, _address = self._listener.accept()
            peer.settimeout(None)
            self._peers.append(peer)

    def all_reduce(self, number: int) -> int:
        """Return the sum of all ranks' numbers; waits until each has called it."""
        if self._listener is None:
            (hub,) = self._peers
            hub.sendall(NUMBER.pack(number))
            return self._receive(hub)
        total = number + sum(self._receive(peer) for peer in self._peers)
        for peer in self._peers:
            peer.sendall(NUMBER.pack(total))
        return total

    def _receive(self, peer: socket.socket) -> int:
        data = b""
        while len(data) < NUMBER.size:
            if not (more := peer.recv(NUMBER.size - len(data))):
                raise ConnectionError(f"rank {self._rank}: another rank of the group is gone")
            data += more
        (number,) = NUMBER.unpack(data)
        return int(number)
