"""The exporter under many connections: real sockets that idle, drip or do not read, beside a client that asks."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rljob_runtime.contract import Phase, Progress
from rljob_runtime.exporter import connections
from rljob_runtime.exporter.connections import CLOSING, GRACE_SECONDS, PER_PEER, STATE_SECONDS, TOTAL, Connections
from rljob_runtime.exporter.server import ApiHandler, Exporter, Server, make_server
from rljob_runtime.spool.spool import Spool
from runtime.tests.conftest import MakeJob

TOKEN = "correct-horse"
THREADS_BESIDE = 8
"""Of the test itself, of the server, and of connections that are just ending."""


@pytest.fixture
def server(spool: Spool, make_job: MakeJob, tmp_path: Path) -> Iterator[Server]:
    config = tmp_path / "job.json"
    config.write_bytes(make_job().to_json())
    found = make_server(ApiHandler, Exporter(spool, config, "pod-1", TOKEN), ("127.0.0.1", 0))
    threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    yield found
    found.shutdown()
    found.server_close()


@contextlib.contextmanager
def peers(server: Server, count: int, first: bytes = b"", each: int = 1) -> Iterator[list[socket.socket]]:
    """Connect from many addresses of this machine and send the start of a request."""
    with contextlib.ExitStack() as stack:
        found = []
        for number in range(count):
            source = f"127.1.{number // each // 250}.{number // each % 250 + 1}"
            one = stack.enter_context(
                socket.create_connection(server.server_address, timeout=10, source_address=(source, 0))  # type: ignore[arg-type]
            )
            one.settimeout(0.05)
            with contextlib.suppress(OSError):
                one.sendall(first)
            found.append(one)
        yield found


def progress(server: Server) -> Progress:
    """Ask as the operator does, at most a few times."""
    for _ in range(3):
        client = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
        with contextlib.closing(client), contextlib.suppress(OSError, http.client.HTTPException):
            client.request("GET", "/v1/progress", headers={"Authorization": f"Bearer {TOKEN}"})
            return Progress.from_json(client.getresponse().read())
    raise AssertionError("the exporter did not answer")


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"GET /v1/pro",
        b"GET /v1/progress HTTP/1.1\r\nX-Slow: ",
        b"POST /v1/stop HTTP/1.1\r\nContent-Length: 10\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\n\r\n" * 200,
    ],
    ids=["idle", "half a line", "half a header", "without a token", "does not read"],
)
def test_connections_of_many_peers_cost_few_threads_and_keep_nobody_out(server: Server, first: bytes) -> None:
    before = threading.active_count()
    with peers(server, 4 * TOTAL, first):
        assert progress(server).phase is Phase.IDLE
        assert len(server.connections) <= TOTAL + CLOSING
        assert threading.active_count() - before <= TOTAL + THREADS_BESIDE


def test_one_peer_has_a_small_share(server: Server) -> None:
    with peers(server, 1000, each=1000):
        assert progress(server).phase is Phase.IDLE
        assert len(server.connections) <= PER_PEER + 1 + CLOSING


def test_a_request_that_follows_another_in_one_connection_is_answered(server: Server) -> None:
    client = http.client.HTTPConnection("127.0.0.1", server.server_address[1], timeout=10)
    with contextlib.closing(client):
        for _ in range(3):
            client.request("GET", "/healthz")
            assert client.getresponse().read() == b"ok\n"
    assert progress(server).phase is Phase.IDLE


class Sockets:
    """Connections with a clock that the test sets."""

    def __init__(self, total: int, per_peer: int) -> None:
        self.time = 0.0
        self.kept = Connections(total, per_peer, lambda: self.time)
        self.pairs: list[tuple[socket.socket, socket.socket]] = []

    def add(self) -> socket.socket:
        """Return a connection that was offered; its thread leaves when it is closed."""
        ours, theirs = socket.socketpair()
        self.pairs.append((ours, theirs))
        threading.Thread(target=self._serve, args=(ours,), daemon=True).start()
        return ours

    def _serve(self, ours: socket.socket) -> None:
        with contextlib.suppress(OSError):
            ours.recv(1)
        self.kept.leave(ours)


@pytest.fixture
def sockets(monkeypatch: pytest.MonkeyPatch) -> Iterator[Sockets]:
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 0.0)
    made = Sockets(2, 2)
    yield made
    for pair in made.pairs:
        for one in pair:
            one.close()


def closed(pair: tuple[socket.socket, socket.socket]) -> bool:
    pair[1].settimeout(0.0)
    try:
        return pair[1].recv(1) == b""
    except BlockingIOError:
        return False


def test_nothing_that_just_arrived_or_is_being_answered_is_closed_for_another(sockets: Sockets) -> None:
    first, second = sockets.add(), sockets.add()
    assert sockets.kept.admit(first, "a")
    assert sockets.kept.admit(second, "b")
    assert not sockets.kept.admit(sockets.add(), "c")
    sockets.time = GRACE_SECONDS
    sockets.kept.answer(first)
    sockets.kept.rest(second)
    assert not sockets.kept.admit(sockets.add(), "c")
    assert not closed(sockets.pairs[0])
    assert not closed(sockets.pairs[1])


def test_what_idles_longest_makes_room(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 5.0)
    first, second = sockets.add(), sockets.add()
    assert sockets.kept.admit(first, "a")
    sockets.time = GRACE_SECONDS
    assert sockets.kept.admit(second, "b")
    assert sockets.kept.admit(sockets.add(), "c")
    assert closed(sockets.pairs[0])
    assert not closed(sockets.pairs[1])


def test_only_a_peer_without_a_connection_is_waited_for(sockets: Sockets, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "PATIENCE_SECONDS", 3600.0)
    assert sockets.kept.admit(sockets.add(), "a")
    assert sockets.kept.admit(sockets.add(), "b")
    assert not sockets.kept.admit(sockets.add(), "a"), "the operator would wait behind it"


def test_a_client_that_neither_asks_nor_reads_is_closed_in_time(sockets: Sockets) -> None:
    first = sockets.add()
    assert sockets.kept.admit(first, "a")
    sockets.time = STATE_SECONDS
    sockets.kept.expire()
    assert not closed(sockets.pairs[0])
    sockets.time = STATE_SECONDS + 1
    sockets.kept.expire()
    assert closed(sockets.pairs[0])
