"""The download of source archives, from an index of the test."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

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
        self.authorized: dict[str, str] = {}
        """Path -> the header Authorization of its last request."""
        self.redirects: dict[str, str] = {}
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
            made.authorized[self.path] = self.headers.get("Authorization", "")
            found = made.answers.get(self.path)
            if self.path in made.redirects:
                self.send_response(302)
                self.send_header("Location", made.redirects[self.path])
            else:
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


@pytest.fixture
def pip_without_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that pip reads, with no index in it."""
    monkeypatch.delenv("PIP_INDEX_URL", raising=False)
    file = tmp_path / "pip.conf"
    file.write_text("[global]\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    return file


def test_the_index_is_that_of_pip(
    pip_without_index: Path, index: Index, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert sdist.pip_index().startswith("https://"), "pip has a default"
    pip_without_index.write_text(f"[global]\nindex-url = {index.url}\n")
    assert sdist.main(words[:2]) == 0
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["some_package-1.2.tar.gz"]
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    assert sdist.pip_index() == "http://127.0.0.1:9/simple"


SECRET = "s3cr:t@/%"
BASIC = "Basic " + base64.b64encode(f"user:{SECRET}".encode()).decode()


def with_credentials(url: str) -> str:
    return url.replace("://", f"://user:{quote(SECRET, safe='')}@")


def test_credentials_are_sent_to_the_index(index: Index, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", with_credentials(index.url))
    assert sdist.main(words[:2]) == 0
    assert index.authorized == dict.fromkeys(("/simple/some-package/", "/files/some_package-1.2.tar.gz"), BASIC)


@pytest.mark.parametrize("by", ["listing", "redirect"])
def test_credentials_are_not_sent_to_another_host(index: Index, words: list[str], by: str) -> None:
    path = "/files/some_package-1.2.tar.gz"
    other = index.url.replace("127.0.0.1", "localhost").replace("/simple", path)
    if by == "listing":
        index.list_files(("some_package-1.2.tar.gz", other, DIGEST))
    else:
        index.redirects["/old"] = other
        index.list_files(("some_package-1.2.tar.gz", "/old", DIGEST))
    assert sdist.main([*words[:3], with_credentials(index.url)]) == 0
    assert index.authorized["/simple/some-package/"] == BASIC
    assert index.authorized[path] == ""


@pytest.mark.parametrize(
    "url",
    [
        "http://user:s3cret@127.0.0.1:9/simple",
        "http://user:s3cret@127.0.0.1:port/simple",
        "http://user:s3cret#x@127.0.0.1:9/simple",
        "http://user:3/s3cret@127.0.0.1:9/simple",
        "http://user:s3cret@[127.0.0.1:9/simple",
        "ftp://user:s3cret@127.0.0.1/simple",
        "user:s3cret@127.0.0.1/simple",
    ],
)
def test_no_message_has_the_credentials(words: list[str], capfd: pytest.CaptureFixture[str], url: str) -> None:
    assert sdist.main([*words[:3], url]) == 1
    answer = capfd.readouterr()
    assert answer.err.startswith("rljob release: ")
    assert "s3cret" not in answer.out + answer.err


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
