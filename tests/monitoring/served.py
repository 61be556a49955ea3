"""What a Prometheus in a test scrapes without a cluster: HTTP pages, and pods that serve them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Manifest = dict[str, Any]
TEXT = "text/plain; version=0.0.4"


@contextmanager
def page(text: Callable[[], str]) -> Iterator[int]:
    """Serve a page of metrics at any path; return the port."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = text().encode()
            self.send_response(200)
            self.send_header("Content-Type", TEXT)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            # Prometheus hangs up on a page that is too long.
            with suppress(ConnectionError):
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with _serving(Page) as port:
        yield port


@contextmanager
def redirecting(location: str) -> Iterator[int]:
    """Answer every request with a redirect to another address; return the port."""

    class Redirect(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302)
            self.send_header("Location", location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with _serving(Redirect) as port:
        yield port


@contextmanager
def _serving(handler: type[BaseHTTPRequestHandler]) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()


def pod(name: str, namespace: str, labels: dict[str, str], ports: dict[str, int], phase: str = "Running") -> Manifest:
    """Return a pod whose address is the loopback."""
    declared = [{"name": port, "containerPort": number, "protocol": "TCP"} for port, number in ports.items()]
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "labels": labels, "resourceVersion": "1"},
        "spec": {"nodeName": "node-1", "containers": [{"name": "main", "image": "x", "ports": declared}]},
        "status": {"phase": phase, "podIP": "127.0.0.1", "hostIP": "127.0.0.1"},
    }
