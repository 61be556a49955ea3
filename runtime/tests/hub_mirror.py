"""A mirror of both hubs on this machine: listings, ranges, redirects to another host for large files, and faults."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34
MODEL, DATASET = "Qwen/Tiny", "openai/gsm8k"
DATASET_ID = 4711
CHUNK = 64 * 1024
PAGE = 2
"""Files of a page of Hugging Face's listing."""


@dataclass
class Asked:
    """A request."""

    path: str
    start: int | None
    token: str
    """Authorization or cookie."""
    host: str


@dataclass
class Mirror:
    """What is served, and what was asked for."""

    files: dict[str, bytes]
    large: frozenset[str] = frozenset()
    """Files that Hugging Face has in LFS: listed with SHA-256, served by another host."""
    token: str = ""
    """Required of every request to the hub, if it is set."""
    no_ranges: bool = False
    failing: int = 0
    """Requests that end with HTTP 503 first."""
    cut_at: int | None = None
    """Bytes of a file after which the connection is closed, once per file."""
    stuck_at: int | None = None
    """Bytes of a file after which nothing more comes."""
    pause_seconds: float = 0.0
    """Pause after each chunk of a file."""
    wrong: dict[str, bytes] = field(default_factory=dict)
    """Content that is served in place of the one that is listed."""
    asked: list[Asked] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)
    released: threading.Event = field(default_factory=threading.Event)
    stuck: threading.Event = field(default_factory=threading.Event)
    url: str = ""
    storage_url: str = ""
    _cut: set[str] = field(default_factory=set)

    def starts(self, path: str) -> list[int]:
        """Return where the transfers of a file began."""
        found = [each for each in self.asked if each.path.endswith(path) and "/api/" not in each.path]
        return [each.start or 0 for each in found if not self.large & {path} or "/storage/" in each.path]

    def content(self, path: str) -> bytes:
        return self.wrong.get(path, self.files[path])


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    mirror: Mirror

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        mirror, parts = self.mirror, urlsplit(self.path)
        token = self.headers.get("Authorization") or self.headers.get("Cookie") or ""
        ranged = self.headers.get("Range")
        start = int(ranged.removeprefix("bytes=").removesuffix("-")) if ranged else None
        mirror.asked.append(Asked(self.path, start, token, self.headers.get("Host", "")))
        if mirror.failing:
            mirror.failing -= 1
            self._answer(503, b"later")
        elif parts.path.startswith("/storage/"):
            self._file(unquote(parts.path.removeprefix("/storage/")), start)
        elif mirror.token and mirror.token not in token:
            self._answer(401, b"who are you?")
        else:
            self._hub(parts.path, {name: values[0] for name, values in parse_qs(parts.query).items()}, start)

    def _hub(self, path: str, query: dict[str, str], start: int | None) -> None:
        mirror = self.mirror
        for kind, name in (("models", MODEL), ("datasets", DATASET)):
            prefix = f"/{name}" if kind == "models" else f"/datasets/{name}"
            if path == f"/api/{kind}/{name}/revision/main":
                self._json({"sha": COMMIT})
                return
            if path == f"/api/{kind}/{name}/tree/{COMMIT}":
                self._tree(int(query.get("cursor", "0")), path)
                return
            if path.startswith(f"{prefix}/resolve/{COMMIT}/"):
                file = unquote(path.removeprefix(f"{prefix}/resolve/{COMMIT}/"))
                if file in mirror.large:
                    self._answer(302, b"", Location=f"{mirror.storage_url}/storage/{file}")
                else:
                    self._file(file, start)
                return
        scope = "/api/v1/models/" + MODEL
        if path == f"{scope}/repo/files" and query["Revision"] == "master":
            self._json({"Data": {"Files": self._scope_files()}})
        elif path == "/api/v1/datasets/AI-ModelScope/gsm8k":
            self._json({"Data": {"Id": DATASET_ID}})
        elif path == f"/api/v1/datasets/{DATASET_ID}/repo/tree":
            first = (int(query["PageNumber"]) - 1) * int(query["PageSize"])
            self._json({"Data": {"Files": self._scope_files()[first : first + int(query["PageSize"])]}})
        elif path in (f"{scope}/repo", "/api/v1/datasets/AI-ModelScope/gsm8k/repo"):
            self._file(query["FilePath"], start)
        else:
            self._answer(404, b"no such page")

    def _tree(self, first: int, path: str) -> None:
        names, mirror = sorted(self.mirror.files), self.mirror
        entries: list[dict[str, object]] = [{"type": "directory", "path": "a-folder", "oid": "0" * 40, "size": 0}]
        for name in names[first : first + PAGE]:
            data = mirror.files[name]
            blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
            entry: dict[str, object] = {"type": "file", "path": name, "size": len(data), "oid": blob}
            if name in mirror.large:
                entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data)}
            entries.append(entry)
        following = f'<https://huggingface.co{path}?recursive=true&cursor={first + PAGE}>; rel="next"'
        self._json(entries, **({"Link": following} if first + PAGE < len(names) else {}))

    def _scope_files(self) -> list[dict[str, object]]:
        files = [
            {"Type": "blob", "Path": name, "Size": len(data), "Sha256": hashlib.sha256(data).hexdigest()}
            for name, data in sorted(self.mirror.files.items())
        ]
        return [{"Type": "tree", "Path": "a-folder", "Size": 0}, *files]

    def _file(self, name: str, start: int | None) -> None:
        mirror = self.mirror
        if name not in mirror.files:
            self._answer(404, b"no such file")
            return
        data, begin = mirror.content(name), 0
        if start is None or mirror.no_ranges:
            self.send_response(200)
        else:
            begin = start
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        for at in range(begin, len(data), CHUNK):
            if mirror.cut_at is not None and at >= mirror.cut_at and name not in mirror._cut:
                mirror._cut.add(name)
                self.close_connection = True
                return
            if mirror.stuck_at is not None and at >= mirror.stuck_at:
                mirror.stuck.set()
                mirror.released.wait(60)
                self.close_connection = True
                return
            time.sleep(mirror.pause_seconds)
            part = data[at : at + CHUNK]
            mirror.sent[name] = mirror.sent.get(name, 0) + len(part)
            try:
                self.wfile.write(part)
            except OSError:  # The client has gone.
                self.close_connection = True
                return

    def _json(self, value: object, **headers: str) -> None:
        self._answer(200, json.dumps(value).encode(), **headers)

    def _answer(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(mirror: Mirror, address: tuple[str, int] = ("127.0.0.1", 0)) -> Iterator[Mirror]:
    """Serve until the block ends: the hub at 127.0.0.1, its storage under another name of this machine."""
    handler = type("Handler", (_Handler,), {"mirror": mirror})
    server = ThreadingHTTPServer(address, handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    mirror.url = f"http://127.0.0.1:{server.server_port}"
    mirror.storage_url = f"http://localhost:{server.server_port}"
    try:
        yield mirror
    finally:
        mirror.released.set()
        server.shutdown()
        server.server_close()
        thread.join()
