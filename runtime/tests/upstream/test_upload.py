"""`rljob_runtime export` with the image's client of a hub: one commit; errors of the hub decide about another try.

The command runs as in a pod: in a process of its own, because the client reads its variables when it is imported.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import EXPORT_MANIFEST, ExitCode, ExportPlace, ExportRequest, PodVariable

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


def exported(folder: Path, address: str, token: str = TOKEN) -> subprocess.CompletedProcess[str]:
    """Export a step with weights in the hub's format, in an image that is offline as those of jobs are."""
    step = folder / "checkpoints" / "global_step_4"
    made = step / "actor" / "model" / "huggingface"
    made.mkdir(parents=True)
    (made / "config.json").write_text("{}")
    (made / "model.safetensors").write_bytes(b"weights")
    with zipfile.ZipFile(step / "data.pt", "w"):
        pass  # an empty archive is whole
    asked = ExportRequest(
        "team", "sums", "uid", str(step.parent), 4, ExportPlace.HUGGING_FACE, repository="team/sums", address=address
    )
    offline = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "rljob_runtime", "export", asked.to_json().decode()],
        env={**os.environ, **offline, PodVariable.EXPORT_TOKEN: token},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_an_export_is_one_commit(hub: str, tmp_path: Path) -> None:
    done = exported(tmp_path, hub)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, f"rljob: Exported: {hub}/team/sums/tree/abc")
    (commit,) = Hub.commits
    assert commit.keys() == {"config.json", "model.safetensors", EXPORT_MANIFEST}
    assert commit["model.safetensors"] == b"weights"
    assert Hub.created[0]["name"] == "sums"
    assert Hub.created[0].get("private") is True or Hub.created[0].get("visibility") == "private"


def test_a_wrong_token_is_not_tried_again_and_not_shown(hub: str, tmp_path: Path) -> None:
    done = exported(tmp_path, hub, token="wrong-token")
    assert done.returncode == ExitCode.BAD_CONFIG
    assert f"rljob: UploadFailed: {hub}: " in done.stdout
    assert "wrong-token" not in done.stdout + done.stderr
    assert Hub.commits == []


def test_a_hub_that_does_not_answer_is_tried_again(tmp_path: Path) -> None:
    done = exported(tmp_path, "http://127.0.0.1:9")
    assert done.returncode == ExitCode.ENVIRONMENT, done.stdout
    assert "offline mode" not in done.stdout
