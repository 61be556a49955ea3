"""The client of the image pushes an export to a hub as one commit, and errors of the hub decide about another try."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import ExitCode, ExportPlace, ExportRequest
from rljob_runtime.export.errors import ExportError
from rljob_runtime.export.folder import Manifest, seal
from rljob_runtime.export.source import Held
from rljob_runtime.export.upload import upload

TOKEN = "made-up-token"


class Hub(BaseHTTPRequestHandler):
    """As much of the Hugging Face Hub's API as one commit of small files needs."""

    commits: list[dict[str, bytes]]
    created: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid credentials"})
        if self.path == "/api/repos/create":
            self.created.append(json.loads(body))
            return self._answer(200, {"url": f"http://{self.headers['Host']}/team/sums"})
        if "/preupload/" in self.path:
            files = [
                {"path": f["path"], "uploadMode": "regular", "shouldIgnore": False} for f in json.loads(body)["files"]
            ]
            return self._answer(200, {"files": files})
        lines = [json.loads(line) for line in body.splitlines()]
        files_of = {line["value"]["path"]: line["value"] for line in lines if line["key"] == "file"}
        self.commits.append({name: base64.b64decode(value["content"]) for name, value in files_of.items()})
        return self._answer(
            200, {"commitUrl": f"http://{self.headers['Host']}/team/sums/commit/abc", "commitOid": "abc"}
        )

    def do_GET(self) -> None:
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            return self._answer(401, {"error": "Invalid credentials"})
        return self._answer(200, {"siblings": [], "id": "team/sums", "sha": "abc"})

    def _answer(self, code: int, document: dict[str, Any]) -> None:
        text = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def hub() -> Iterator[str]:
    Hub.commits, Hub.created = [], []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def model(folder: Path, request: ExportRequest) -> tuple[Path, Manifest]:
    made = folder / "model"
    made.mkdir()
    (made / "config.json").write_text("{}")
    (made / "model.safetensors").write_bytes(b"weights")
    return made, seal(made, request, Held(4, 1, folder))


def request(address: str) -> ExportRequest:
    return ExportRequest(
        "team", "sums", "uid", "/ckpt", 4, ExportPlace.HUGGING_FACE, repository="team/sums", address=address
    )


def test_an_export_is_one_commit(hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLJOB_EXPORT_TOKEN", TOKEN)
    asked = request(hub)
    made, manifest = model(tmp_path, asked)
    assert upload(made, asked, manifest) == f"{hub}/team/sums/tree/abc"
    (commit,) = Hub.commits
    assert commit == {file.name: file.read_bytes() for file in made.iterdir()}
    assert Hub.created[0]["name"] == "sums"
    assert Hub.created[0].get("private") is True or Hub.created[0].get("visibility") == "private"


def test_a_wrong_token_is_not_tried_again_and_not_shown(
    hub: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RLJOB_EXPORT_TOKEN", "wrong-token")
    asked = request(hub)
    made, manifest = model(tmp_path, asked)
    with pytest.raises(ExportError) as caught:
        upload(made, asked, manifest)
    assert (caught.value.code, caught.value.reason) == (ExitCode.BAD_CONFIG, "UploadFailed"), caught.value
    assert "wrong-token" not in str(caught.value)
    assert Hub.commits == []


def test_a_hub_that_does_not_answer_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RLJOB_EXPORT_TOKEN", TOKEN)
    asked = request("http://127.0.0.1:9")
    made, manifest = model(tmp_path, asked)
    with pytest.raises(ExportError) as caught:
        upload(made, asked, manifest)
    assert caught.value.code == ExitCode.ENVIRONMENT
