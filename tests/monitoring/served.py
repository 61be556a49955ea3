"""What a Prometheus in a test scrapes without a cluster: HTTP pages, and pods that serve them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield int(server.server_address[1])
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
