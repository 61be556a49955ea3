"""Reads what a client asks for."""

from __future__ import annotations

import array
import contextlib
import json
import os
import socket
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob_runtime.fork_server.client import BEGIN, FILES_MAX, HEADER, NO

REQUEST_SECONDS = 10.0
"""Time for a client to send its request; it does nothing else meanwhile."""


@dataclass(frozen=True)
class Asked:
    """A request and who waits for its answer."""

    client: socket.socket
    request: Mapping[str, Any]
    """See `client.request`."""
    files: list[int]
    """The client's files, in the order of `request["files"]`."""

    @property
    def environ(self) -> Mapping[str, str]:
        """Environment of the client."""
        environ: Mapping[str, str] = self.request["environ"]
        return environ

    @property
    def wants_process(self) -> bool:
        """Whether a process is to be forked."""
        return bool(self.request["arguments"] != [BEGIN])

    def has_gone(self) -> bool:
        """Report whether the client has given up: it runs as an ordinary process already, or not at all."""
        self.client.settimeout(0)
        try:
            return self.client.recv(1, socket.MSG_PEEK) == b""
        except BlockingIOError:
            return False
        finally:
            self.client.settimeout(REQUEST_SECONDS)

    def refuse(self, reason: str) -> None:
        """Order the client to become an ordinary process."""
        if self.wants_process:
            tell(f"not forked: {reason}: {' '.join(self.request['arguments'])[:120]}")
            with contextlib.suppress(OSError):
                self.client.sendall(NO)

    def close(self) -> None:
        """Forget the request."""
        self.client.close()
        self.close_files()

    def close_files(self) -> None:
        """Close the client's files."""
        for number in self.files:
            os.close(number)


def read(client: socket.socket) -> Asked | None:
    """Read a request; None, after a line in the log, if it cannot be read."""
    client.settimeout(REQUEST_SECONDS)
    files = array.array("i")
    try:
        if _user_of(client) != os.getuid():
            raise PermissionError("the client is another user's")
        room = socket.CMSG_SPACE(FILES_MAX * files.itemsize)
        head, ancillary, _, _ = client.recvmsg(HEADER.size, room)
        for level, kind, data in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                files.frombytes(data[: len(data) - len(data) % files.itemsize])
        size = HEADER.unpack(head + _receive(client, HEADER.size - len(head)))[0]
        return Asked(client, json.loads(_receive(client, size)), list(files))
    except (OSError, EOFError, ValueError) as error:
        tell(f"a request cannot be read: {error!r}")
        for number in files:
            os.close(number)
        return None


def _receive(client: socket.socket, size: int) -> bytes:
    payload = b""
    while len(payload) < size:
        more = client.recv(size - len(payload))
        if not more:
            raise EOFError("the client has gone")
        payload += more
    return payload


def _user_of(client: socket.socket) -> int:
    raw = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", raw)[1])


def tell(text: str) -> None:
    """Write a line into the server's log."""
    print(f"rljob: fork server: {text}", file=sys.stderr, flush=True)  # noqa: T201
