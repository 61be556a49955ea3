"""The download of source archives, from an index of the test."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from scripts.release import sdist
from scripts.release.images import ROOT
from scripts.release.packages import SDISTS

CONTENT = b"an archive"
DIGEST = hashlib.sha256(CONTENT).hexdigest()
WHEEL = "f" * 64


class Index:
    """What the index answers, by path."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.url = ""

    def list_files(self, *files: tuple[str, str, str]) -> None:
        """State the files of the package: name, URL and SHA-256."""
        rows = [{"filename": name, "url": url, "hashes": {"sha256": digest}} for name, url, digest in files]
        self.answers["/simple/some-package/"] = json.dumps({"files": rows}).encode()


@pytest.fixture
def index() -> Iterator[Index]:
    made = Index()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            made.asked.append(self.path)
            found = made.answers.get(self.path)
            self.send_response(200 if found is not None else 404)
            self.end_headers()
            self.wfile.write(found or b"")

        def log_message(self, *words: object) -> None:
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        made.url = f"http://127.0.0.1:{server.server_port}/simple"
        made.answers["/files/some_package-1.2.tar.gz"] = CONTENT
        made.list_files(
            ("some_package-1.2-py3-none-any.whl", "../../files/w.whl", WHEEL),
            ("some_package-1.2.tar.gz", "../../files/some_package-1.2.tar.gz", DIGEST),
        )
        yield made
        server.shutdown()
        thread.join()


@pytest.fixture
def words(index: Index, tmp_path: Path) -> list[str]:
    lock = tmp_path / "lock.txt"
    lock.write_text(f"# a comment\nSome.Package==1.2 \\\n    --hash=sha256:{WHEEL} \\\n    --hash=sha256:{DIGEST}\n")
    return [str(lock), str(tmp_path / "out"), "--index", index.url]


def test_an_index_is_required(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    assert sdist.main([str(ROOT / "requirements/dev.txt"), "unused"]) == 1
    assert "set PIP_INDEX_URL" in capsys.readouterr().err


def test_the_archive_of_the_lock_is_downloaded_once(index: Index, words: list[str], tmp_path: Path) -> None:
    assert sdist.main(words) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == {
        "some_package-1.2.tar.gz": CONTENT
    }
    assert sdist.main(words) == 0
    assert index.asked.count("/files/some_package-1.2.tar.gz") == 1


@pytest.mark.parametrize(
    ("case", "complaint"),
    [
        ("another content", "and the lock"),
        ("another hash", "no source archive of Some.Package 1.2 with a hash of the lock"),
        ("a name outside of the folder", "no source archive"),
        ("a page for people", "answers no listing in JSON"),
        ("a file of this machine", "no address of http"),
        ("no such package", "404"),
    ],
)
def test_anything_else_is_refused(
    index: Index, words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], case: str, complaint: str
) -> None:
    archive = ("some_package-1.2.tar.gz", "../../files/some_package-1.2.tar.gz", DIGEST)
    if case == "another content":
        index.answers["/files/some_package-1.2.tar.gz"] = b"another archive"
    elif case == "another hash":
        index.list_files((archive[0], archive[1], "e" * 64))
    elif case == "a name outside of the folder":
        index.list_files(("../some_package-1.2.tar.gz", archive[1], DIGEST))
    elif case == "a page for people":
        index.answers["/simple/some-package/"] = b"<html></html>"
    elif case == "a file of this machine":
        index.list_files((archive[0], "file:///etc/hostname", DIGEST))
    else:
        del index.answers["/simple/some-package/"]
    assert sdist.main(words) == 1
    assert complaint in capsys.readouterr().err
    assert not list(tmp_path.rglob("*.tar.gz*"))


def test_the_locks_of_archives_name_packages_with_hashes() -> None:
    for lock in SDISTS:
        found = list(sdist.pins((ROOT / f"requirements/{lock}.txt").read_text()))
        assert found
        assert all(pin.digests for pin in found)
