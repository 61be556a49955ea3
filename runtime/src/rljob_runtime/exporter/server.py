"""The exporter's two HTTP servers: metrics without a token, progress and stop with the cluster's token.

When its pod is deleted, the exporter keeps serving while the run saves: the operator and the workers' preStop hooks
wait until it reports the end of the run.
"""

from __future__ import annotations

import hmac
import http.client
import logging
import os
import re
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from rljob_runtime.contract import (
    ContractError,
    Phase,
    PodVariable,
    Port,
    Progress,
    StopRequest,
    exporter_port,
    head_paths,
)
from rljob_runtime.exporter.connections import Connections
from rljob_runtime.exporter.exposition import CONTENT_TYPE
from rljob_runtime.exporter.scrape import Scrape
from rljob_runtime.spool.spool import Spool
from rljob_runtime.stop import OVER, seen_progress

BODY_LIMIT = 64 * 1024
RAY_JOBS = re.compile(r"/api/jobs/(?:[\w-]+(?:/logs)?)?", re.ASCII)
"""What the operator asks of Ray's job API: a submission, a job, its log."""
RAY_SECONDS = 10.0
"""Ray starts a supervisor actor before it answers a submission; the operator waits as long."""
IO_TIMEOUT_SECONDS = 5
POLL_SECONDS = 0.5
FAREWELL_SECONDS = 7.0
"""How long to keep reporting the end: workers poll every two seconds, the operator every five. The head holds no
NPU."""
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Exporter:
    """The data that both servers answer from."""

    spool: Spool
    config: Path
    pod_uid: str
    token: str
    ray_jobs_port: int | None = None
    """Port of Ray's job API, if Ray cannot check tokens."""

    def progress(self) -> Progress:
        """Return the current attempt's progress, or phase Idle if there is no attempt."""
        return seen_progress(self.spool) or Progress(pod_uid=self.pod_uid, phase=Phase.IDLE)

    @cached_property
    def scrape(self) -> Scrape:
        """The state behind `/metrics`."""
        return Scrape(self.spool, self.config)

    def authorized(self, header: str) -> bool:
        """Compare the bearer token in constant time. If no token is set, every request is denied."""
        scheme, _, given = header.partition(" ")
        matches = hmac.compare_digest(given.strip().encode(), self.token.encode())
        return bool(self.token) and scheme.lower() == "bearer" and matches


class Handler(BaseHTTPRequestHandler):
    """Common base of both servers' handlers."""

    exporter: Exporter
    server: Server
    protocol_version = "HTTP/1.1"
    server_version = "rljob-exporter"
    sys_version = ""
    timeout = IO_TIMEOUT_SECONDS

    def handle_one_request(self) -> None:
        """Wait for a request and answer it."""
        self.server.connections.rest(self.request)
        super().handle_one_request()

    def parse_request(self) -> bool:
        """Read the rest of a request after its first line."""
        arrived = super().parse_request()
        if arrived:
            self.server.connections.answer(self.request)
        return arrived

    def answer(self, status: HTTPStatus, body: str | bytes, content_type: str = "application/json") -> None:
        """Send a complete response."""
        data = body.encode() if isinstance(body, str) else body
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self, status: HTTPStatus, message: str) -> None:
        """Send an error as text and close the connection, so that an unread body is not parsed as the next request."""
        self.close_connection = True
        self.answer(status, f"{message}\n", "text/plain; charset=utf-8")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's signature
        """Do not log requests: two lines per minute during the whole job are not useful."""


class MetricsHandler(Handler):
    """`/metrics` and `/healthz`."""

    def do_GET(self) -> None:
        """Answer GET requests."""
        if self.path == "/metrics":
            self.answer(HTTPStatus.OK, self.exporter.scrape.text(), CONTENT_TYPE)
        elif self.path == "/healthz":
            self.answer(HTTPStatus.OK, "ok\n", "text/plain; charset=utf-8")
        else:
            self.refuse(HTTPStatus.NOT_FOUND, "not found; see /metrics and /healthz")


class ApiHandler(Handler):
    """`/v1/progress`, `/v1/stop` and `/healthz`; for a Ray without tokens, also its job API."""

    def do_GET(self) -> None:
        """Answer GET requests."""
        if self.path == "/healthz":
            self.answer(HTTPStatus.OK, "ok\n", "text/plain; charset=utf-8")
        elif not self._allowed():
            return
        elif self.path == "/v1/progress":
            self.answer(HTTPStatus.OK, self.exporter.progress().to_json())
        elif self._is_of_ray():
            self._pass_on()
        else:
            self.refuse(HTTPStatus.NOT_FOUND, "not found; see /v1/progress and /v1/stop")

    def do_POST(self) -> None:
        """Accept a stop request, or a submission to a Ray without tokens."""
        if not self._allowed():
            return
        if self.path != "/v1/stop" and not self._is_of_ray():
            self.refuse(HTTPStatus.NOT_FOUND, "not found; see /v1/stop")
            return
        length = self.headers.get("Content-Length", "")
        if not length.isdigit():
            self.refuse(HTTPStatus.LENGTH_REQUIRED, "no Content-Length; send one")
            return
        if int(length) > BODY_LIMIT:
            self.refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body exceeds {BODY_LIMIT} bytes")
            return
        body = self.rfile.read(int(length))
        if self._is_of_ray():
            self._pass_on(body)
            return
        try:
            request = StopRequest.from_json(body)
        except (ContractError, UnicodeDecodeError) as error:
            self.refuse(HTTPStatus.BAD_REQUEST, str(error))
            return
        self._stop(request)

    def _stop(self, request: StopRequest) -> None:
        progress = self.exporter.progress()
        if request.attempt != progress.attempt:
            self.refuse(HTTPStatus.CONFLICT, f"attempt {progress.attempt} is current, not {request.attempt}")
            return
        if progress.phase is not Phase.ENDED:
            try:
                self.exporter.spool.request_stop(request)
            except OSError as error:
                self.refuse(HTTPStatus.INSUFFICIENT_STORAGE, f"the request cannot be written: {error.strerror}")
                return
        self.answer(HTTPStatus.ACCEPTED, progress.to_json())

    def _is_of_ray(self) -> bool:
        return self.exporter.ray_jobs_port is not None and RAY_JOBS.fullmatch(self.path) is not None

    def _pass_on(self, body: bytes | None = None) -> None:
        """Answer with what Ray's job API on this head answers to the same request."""
        connection = http.client.HTTPConnection("127.0.0.1", self.exporter.ray_jobs_port, timeout=RAY_SECONDS)
        try:
            # Ray 2.48 fails on a request without a User-Agent (dashboard/optional_utils.py:137).
            named = {"Content-Type": "application/json", "User-Agent": self.server_version}
            connection.request(self.command, self.path, body, named)
            answered = connection.getresponse()
        except (OSError, http.client.HTTPException) as error:
            self.refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"Ray's job API does not answer: {error}")
        else:
            self.close_connection = True
            self.send_response(answered.status)
            self.send_header("Content-Type", answered.headers.get("Content-Type", "text/plain"))
            if length := answered.headers.get("Content-Length"):
                # Without it, an answer that Ray cuts off would look complete.
                self.send_header("Content-Length", length)
            self.send_header("Connection", "close")
            self.end_headers()
            shutil.copyfileobj(answered, self.wfile)
        finally:
            connection.close()

    def _allowed(self) -> bool:
        if self.exporter.authorized(self.headers.get("Authorization", "")):
            return True
        self.refuse(
            HTTPStatus.UNAUTHORIZED, "missing or wrong token; send Authorization: Bearer with the cluster's token"
        )
        return False


class Server(ThreadingHTTPServer):
    """Uses one thread per connection, of which `Connections` admits few. They do not keep the process alive."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 1024
    """When a cluster is deleted, the hooks of all pods connect at once. The kernel may apply a lower limit
    (somaxconn)."""

    def __init__(self, address: tuple[str, int], handler: type[Handler]) -> None:
        self.connections = Connections()
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401 - the base's signature
        """Start a thread for a connection that is admitted, and close any other."""
        if not self.connections.admit(request, client_address[0]):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except RuntimeError:  # no further thread can be started
            self.connections.leave(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Serve a connection until it ends."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self.connections.leave(request)

    def service_actions(self) -> None:
        """Close what idles, twice a second."""
        self.connections.expire()

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401
        """Print the traceback of a bug; that a client is gone is none, and clients must not fill the log."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def make_server(handler: type[Handler], exporter: Exporter, address: tuple[str, int]) -> Server:
    """Return a bound server whose handlers answer from `exporter`."""
    bound = type(handler.__name__, (handler,), {"exporter": exporter})
    return Server(address, bound)


def serve(environ: Mapping[str, str], spool: Path, outlive_seconds: float) -> int:
    """Serve until SIGTERM, and then until the run has ended, for at most `outlive_seconds`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    leave = threading.Event()
    # As process 1 of its container, it would ignore SIGTERM without a handler.
    signal.signal(signal.SIGTERM, lambda *_: leave.set())
    exporter = Exporter(
        spool=Spool(spool),
        config=Path(environ.get(PodVariable.CONFIG) or head_paths().config),
        pod_uid=environ.get(PodVariable.POD_UID, ""),
        token=environ.get(PodVariable.TOKEN, ""),
        ray_jobs_port=int(environ[PodVariable.RAY_JOBS_PORT]) if PodVariable.RAY_JOBS_PORT in environ else None,
    )
    if not exporter.token:
        log.warning("%s is not set: all progress and stop requests are refused", PodVariable.TOKEN.value)
    ports = {ApiHandler: exporter_port(environ, Port.API), MetricsHandler: exporter_port(environ, Port.METRICS)}
    for handler, port in ports.items():
        threading.Thread(target=make_server(handler, exporter, ("", port)).serve_forever, daemon=True).start()
    log.info(
        "metrics on port %d, progress and stop on port %d, pid %d",
        ports[MetricsHandler],
        ports[ApiHandler],
        os.getpid(),
    )
    leave.wait()
    outlive(exporter, outlive_seconds)
    return 0


def outlive(exporter: Exporter, seconds: float) -> None:
    """Wait while the run saves, and a little longer for clients that poll for the end."""
    deadline = time.monotonic() + seconds
    while exporter.progress().phase not in OVER and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    time.sleep(min(seconds, FAREWELL_SECONDS))
