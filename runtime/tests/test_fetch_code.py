"""Fetching code from real Git repositories, created and served by git: from a folder and over HTTP."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from dulwich.objects import Blob
from dulwich.repo import Repo

from rljob_runtime import fetch_code as module
from rljob_runtime.fetch_code import CodeRequest, ProgressLog, fetch_code

PLAIN_GIT = {
    **os.environ,
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_AUTHOR_NAME": "a",
    "GIT_AUTHOR_EMAIL": "a@example",
    "GIT_COMMITTER_NAME": "a",
    "GIT_COMMITTER_EMAIL": "a@example",
}


def git(folder: Path, *words: str) -> str:
    done = subprocess.run(["git", "-C", str(folder), *words], env=PLAIN_GIT, check=True, capture_output=True, text=True)
    return done.stdout.strip()


class Origin:
    """A repository with two commits on a branch, and one that no branch points to."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        git(folder, "init", "--quiet", "--initial-branch=main")
        (folder / "math" / "deep").mkdir(parents=True)
        (folder / "math" / "reward.py").write_text("def score(): return 1\n")
        (folder / "math" / "deep" / "run.sh").write_text("#!/bin/sh\n")
        (folder / "math" / "deep" / "run.sh").chmod(0o755)
        (folder / "math" / "link.py").symlink_to("reward.py")
        (folder / "README").write_text("top\n")
        self.first = self.commit("first")
        (folder / "math" / "reward.py").write_text("def score(): return 2\n")
        self.second = self.commit("second")

    def commit(self, message: str) -> str:
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", "--message", message)
        return git(self.folder, "rev-parse", "HEAD")


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    return Origin(tmp_path_factory.mktemp("git") / "origin")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "code"
    made.mkdir()
    return made


class Backend(BaseHTTPRequestHandler):
    """git http-backend behind HTTP, optionally with a password, and with initial failures."""

    protocol_version = "HTTP/1.0"
    root: Path
    password: str | None
    failures: int
    asked: list[str]
    old: bool
    """Whether it supports only protocol 0, as old servers do."""

    def do_GET(self) -> None:
        self._answer(b"")

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length") or 0)))

    def log_message(self, *_: object) -> None:
        """Do not log requests."""

    def _answer(self, body: bytes) -> None:
        kind = type(self)
        kind.asked.append(self.path)
        if kind.failures > 0:
            kind.failures -= 1
            self.send_error(503)
            return
        wanted = "Basic " + base64.b64encode(f"robot:{kind.password}".encode()).decode()
        if kind.password is not None and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="git"')
            self.end_headers()
            return
        path, _, query = self.path.partition("?")
        environment = {
            **PLAIN_GIT,
            "GIT_PROJECT_ROOT": str(kind.root),
            "GIT_HTTP_EXPORT_ALL": "1",
            "REQUEST_METHOD": self.command,
            "PATH_INFO": path,
            "QUERY_STRING": query,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": "" if kind.old else self.headers.get("Git-Protocol", ""),
        }
        done = subprocess.run(["git", "http-backend"], input=body, env=environment, capture_output=True, check=False)
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        self.send_response(int(headers.pop("Status", "200").split()[0]))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


@contextmanager
def served(origin: Origin, *, password: str | None = None, failures: int = 0, old: bool = False) -> Iterator[Any]:
    kind = type(
        "Handler",
        (Backend,),
        {"root": origin.folder.parent, "password": password, "failures": failures, "asked": [], "old": old},
    )
    server = ThreadingHTTPServer(("127.0.0.1", 0), kind)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/origin", kind
    finally:
        server.shutdown()
        server.server_close()


def files_of(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


FIRST = {
    "README": "top\n",
    "math/reward.py": "def score(): return 1\n",
    "math/link.py": "def score(): return 1\n",
    "math/deep/run.sh": "#!/bin/sh\n",
}


def test_the_commit_is_fetched_from_a_folder(origin: Origin, folder: Path) -> None:
    assert fetch_code(CodeRequest(origin.folder.as_uri(), origin.first, folder), {}) == 0
    assert files_of(folder) == FIRST
    assert os.access(folder / "math/deep/run.sh", os.X_OK)
    assert (folder / "math/link.py").is_symlink()


def test_the_commit_is_fetched_over_http(origin: Origin, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served(origin) as (url, _):
        assert fetch_code(CodeRequest(url, origin.second, folder), {}) == 0
    assert files_of(folder) == FIRST | {
        "math/reward.py": "def score(): return 2\n",
        "math/link.py": "def score(): return 2\n",
    }
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"fetch-code: attempt 1: fetching commit {origin.second} of {url}"
    assert said[-1].startswith("fetch-code: wrote 4 files, ")


def test_an_old_server_gives_out_a_commit_below_a_branch_too(origin: Origin, folder: Path) -> None:
    with served(origin, old=True) as (url, _):
        assert fetch_code(CodeRequest(url, origin.first, folder), {}) == 0
    assert files_of(folder) == FIRST


@pytest.mark.parametrize("path", ["math", "/math/", "./math"])
def test_only_the_wanted_folder_is_written(origin: Origin, folder: Path, path: str) -> None:
    assert fetch_code(CodeRequest(origin.folder.as_uri(), origin.first, folder, path), {}) == 0
    assert set(files_of(folder)) == {"reward.py", "link.py", "deep/run.sh"}


def test_what_an_earlier_life_wrote_is_replaced(origin: Origin, folder: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    (folder / "old").mkdir()
    (folder / "old" / "file").write_text("old")
    (folder / "README").write_text("old")
    (folder / "link").symlink_to(outside)
    assert fetch_code(CodeRequest(origin.folder.as_uri(), origin.first, folder), {}) == 0
    assert files_of(folder) == FIRST
    assert (outside / "kept").read_text() == "kept"


def test_a_private_repository_needs_its_password_which_is_never_printed(
    origin: Origin, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {"RLJOB_CODE_USERNAME": "robot", "RLJOB_CODE_PASSWORD": "s3cret"}
    with served(origin, password="s3cret") as (url, _):
        assert fetch_code(CodeRequest(url, origin.first, folder), environment) == 0
        assert fetch_code(CodeRequest(url, origin.first, folder), {}) == 64
        assert "a private one needs spec.code.git.secretRef" in capsys.readouterr().out
        assert fetch_code(CodeRequest(url, origin.first, folder), environment | {"RLJOB_CODE_PASSWORD": "no"}) == 64
    said = capsys.readouterr().out
    assert "check the Secret in spec.code.git.secretRef" in said
    assert "s3cret" not in said


def test_a_server_that_comes_back_is_tried_again(
    origin: Origin, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.01)
    with served(origin, failures=2) as (url, _):
        assert fetch_code(CodeRequest(url, origin.first, folder), {}) == 0
    assert files_of(folder) == FIRST
    assert "attempt 3" in capsys.readouterr().out


def test_a_server_that_stays_away_is_abandoned(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.2)
    with served_by_nobody() as url:
        assert fetch_code(CodeRequest(url, "0" * 40, folder, seconds=0.5), {}) == 65
    assert "failed after" in capsys.readouterr().out
    assert list(folder.iterdir()) == []


@contextmanager
def served_by_nobody() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)
    port = server.server_address[1]
    server.server_close()
    yield f"http://127.0.0.1:{port}/origin"


@pytest.mark.parametrize("old", [True, False], ids=["old server", "new server"])
def test_a_commit_that_is_not_there_is_not_tried_again(
    origin: Origin, folder: Path, capsys: pytest.CaptureFixture[str], *, old: bool
) -> None:
    with served(origin, old=old) as (url, _):
        assert fetch_code(CodeRequest(url, "0" * 40, folder), {}) == 64
    assert f"{url} has no commit {'0' * 40}" in capsys.readouterr().out


def test_a_commit_that_a_folder_does_not_hold_is_not_tried_again(origin: Origin, folder: Path) -> None:
    assert fetch_code(CodeRequest(origin.folder.as_uri(), "0" * 40, folder), {}) == 64


@pytest.mark.parametrize(("path", "words"), [("maths", "has no folder maths"), ("README", "README is not a folder")])
def test_a_folder_that_is_not_in_the_commit_is_reported(
    origin: Origin, folder: Path, capsys: pytest.CaptureFixture[str], path: str, words: str
) -> None:
    assert fetch_code(CodeRequest(origin.folder.as_uri(), origin.first, folder, path), {}) == 64
    assert words in capsys.readouterr().out


def test_a_hash_that_names_a_tree_is_reported(origin: Origin, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tree = git(origin.folder, "rev-parse", f"{origin.first}^{{tree}}")
    with served(origin) as (url, _):
        assert fetch_code(CodeRequest(url, tree, folder), {}) == 64
    assert "is a tree, not a commit" in capsys.readouterr().out


def test_no_repository_is_reported(origin: Origin, folder: Path) -> None:
    assert fetch_code(CodeRequest((origin.folder / "math").as_uri(), origin.first, folder), {}) == 64
    with served(origin) as (url, _):
        assert fetch_code(CodeRequest(f"{url}-none", origin.first, folder), {}) == 64


def test_a_file_that_was_changed_in_the_store_is_found(origin: Origin, folder: Path, tmp_path: Path) -> None:
    assert fetch_code(CodeRequest(origin.folder.as_uri(), origin.first, folder), {}) == 0
    good = Blob.from_string(b"good")
    with pytest.raises(ValueError, match="corrupted in transfer"):
        module._check(b"blob", b"evil", good.id)
    with Repo.init_bare(str(tmp_path / "bare"), mkdir=True) as repo:
        repo.object_store.add_object(good)
        module._check(b"blob", repo.object_store[good.id].as_raw_string(), good.id)


def test_a_server_that_never_ends_is_left(tmp_path: Path) -> None:
    """Check the time limit against a server that sends a byte now and then."""

    class Trickle(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            while not stop.wait(0.1):
                self.wfile.write(b"0")
                self.wfile.flush()

        def log_message(self, *_: object) -> None:
            """Do not log requests."""

    stop = threading.Event()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Trickle)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_address[1]}/origin"
    words = ["--url", url, "--revision", "0" * 40, "--folder", str(tmp_path), "--seconds", "0.5"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "rljob_runtime", "fetch-code", *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
    assert done.returncode == 65
    assert "not finished after 0.5 s" in done.stdout


def test_what_the_server_says_is_printed_at_a_limited_rate(capsys: pytest.CaptureFixture[str]) -> None:
    log = ProgressLog()
    log.relay(b"Counting objects:  50% (1/2)\r")
    log.relay(b"Counting objects: 100% (2/2)\r\n")
    assert capsys.readouterr().out == "fetch-code: Counting objects: 50% (1/2)\n"
