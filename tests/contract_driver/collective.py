"""A sum over all ranks over TCP to rank 0. As in a process group, all ranks wait for one that hangs."""

from __future__ import annotations

import socket
import struct

NUMBER = struct.Struct("!q")
JOIN_SECONDS = 60.0


class Group:
    """One rank's member of the group; every rank calls `all_reduce` once per step."""

    def __init__(self, rank: int, ranks: int) -> None:
        self._rank, self._ranks = rank, ranks
        self._listener = socket.create_server(("", 0)) if rank == 0 else None
        self._peers: list[socket.socket] = []

    @property
    def port(self) -> int:
        """Return the port on which rank 0 listens."""
        if self._listener is None:
            raise AssertionError("only rank 0 listens")
        return int(self._listener.getsockname()[1])

    def join(self, address: str, port: int) -> None:
        """Connect this rank to rank 0. On rank 0, wait until all other ranks have connected."""
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
        """Return the sum of all ranks' numbers. Wait until every rank has called it and has the sum.

        Rank 0 waits for an answer to the sum, so it does not continue while a rank hangs anywhere in the call.
        """
        if self._listener is None:
            (root,) = self._peers
            root.sendall(NUMBER.pack(number))
            total = self._receive(root)
            root.sendall(NUMBER.pack(total))
            return total
        total = number + sum(self._receive(peer) for peer in self._peers)
        for peer in self._peers:
            peer.sendall(NUMBER.pack(total))
        for peer in self._peers:
            self._receive(peer)
        return total

    def _receive(self, peer: socket.socket) -> int:
        data = b""
        while len(data) < NUMBER.size:
            if not (more := peer.recv(NUMBER.size - len(data))):
                raise ConnectionError(f"rank {self._rank}: another rank of the group has closed its connection")
            data += more
        (number,) = NUMBER.unpack(data)
        return int(number)
