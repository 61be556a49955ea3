"""Download the source archives of a lock: `python -m scripts.release.sdist LOCK FOLDER`.

pip has no such command: it runs the build of an archive to read its name, and installs what that build wants, which for
vllm and arctic-inference is a torch of several gigabytes. This asks the index for its files (PEP 691), takes the
archive whose SHA-256 the lock has, and compares the content. The index and its credentials are those of pip, and no
message has the credentials.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit

LISTING = "application/vnd.pypi.simple.v1+json"
LISTING_BYTES = 64 << 20
SECONDS = 60
"""Without a byte from the index."""
ARCHIVES = (".tar.gz", ".zip")
CHUNK = 1 << 20
PIP_INDEX = """\
from pip._internal.commands import create_command
print(create_command("download").parser.get_default_values().index_url)
"""
"""Prints the index that `pip download` uses: its option from the environment, its files, or its default.

`pip config` does not know the default.
"""
PIP_SECONDS = 60


class SdistError(Exception):
    """An archive cannot be downloaded; the message is for the user."""


@dataclass(frozen=True)
class Index:
    """A package index without the credentials of its URL, which are sent to its own host only."""

    url: str
    opener: urllib.request.OpenerDirector

    @staticmethod
    def of(url: str) -> Index:
        """Return the index of a URL. Raise SdistError if that is no URL of one, and do not repeat the URL then."""
        try:
            parts = urlsplit(url.strip())
            valid = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        except ValueError:
            valid = False
        # An @ behind the host was one of the credentials, with a character before it that ends the host.
        if not valid or "@" in f"{parts.path}{parts.query}{parts.fragment}":
            raise SdistError(
                "the package index is no URL of http or https; correct PIP_INDEX_URL, pip's configuration or --index, "
                "and write special characters of a password as %XX"
            )
        place = parts.netloc.rpartition("@")[2]
        plain = parts._replace(netloc=place, query="", fragment="").geturl()
        passwords = urllib.request.HTTPPasswordMgrWithPriorAuth()
        if parts.username is not None:
            origin = parts._replace(netloc=place, path="/", query="", fragment="").geturl()
            user, password = unquote(parts.username), unquote(parts.password or "")
            passwords.add_password(None, origin, user, password, is_authenticated=True)
        return Index(plain, urllib.request.build_opener(urllib.request.HTTPBasicAuthHandler(passwords)))

    def open(self, url: str, accept: str = "*/*") -> HTTPResponse:
        """Return the answer to a request, of this index or of the host that has its files."""
        parts = urlsplit(url)
        url = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
        if parts.scheme not in ("http", "https"):
            raise SdistError(f"{url}: no address of http or https")
        request = urllib.request.Request(url, headers={"Accept": accept})  # noqa: S310 - checked above
        try:
            answer: HTTPResponse = self.opener.open(request, timeout=SECONDS)
        except (OSError, HTTPException, ValueError) as error:
            raise SdistError(f"{url}: {error}") from None
        return answer


@dataclass(frozen=True)
class Pin:
    """A package of a lock."""

    name: str
    version: str
    digests: frozenset[str]


def pins(text: str) -> Iterator[Pin]:
    """Yield the packages of a lock with hashes."""
    for line in text.replace("\\\n", " ").splitlines():
        if found := re.match(r"([A-Za-z0-9._-]+)==([^\s;]+)", line):
            yield Pin(found[1], found[2], frozenset(re.findall(r"--hash=sha256:([0-9a-f]{64})", line)))


def fetch(pin: Pin, index: Index, folder: Path) -> Path:
    """Return the archive of a package, downloaded unless the folder has it."""
    page = urljoin(index.url.rstrip("/") + "/", re.sub(r"[-_.]+", "-", pin.name).lower() + "/")
    name, url, digest = _archive(pin, index, page)
    target = folder / name
    if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() == digest:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial, seen = target.with_name(f"{name}.part"), hashlib.sha256()
    with index.open(url) as answer, partial.open("wb") as file:
        while chunk := answer.read(CHUNK):
            seen.update(chunk)
            file.write(chunk)
    if seen.hexdigest() != digest:
        partial.unlink()
        raise SdistError(f"{url} has SHA-256 {seen.hexdigest()}, and the lock {digest}; the file was deleted")
    partial.rename(target)
    return target


def _archive(pin: Pin, index: Index, page: str) -> tuple[str, str, str]:
    """Return name, URL and SHA-256 of the archive."""
    with index.open(page, LISTING) as answer:
        text = answer.read(LISTING_BYTES)
    try:
        files = json.loads(text)["files"]
        for file in files:
            name, digest = str(file["filename"]), str(file["hashes"].get("sha256", ""))
            # A foreign name must not lead out of the folder.
            if digest in pin.digests and name.endswith(ARCHIVES) and Path(name).name == name:
                return name, urljoin(page, file["url"]), digest
    except (ValueError, KeyError, TypeError, AttributeError):
        raise SdistError(f"{page} answers no listing in JSON (PEP 691); name another index by --index") from None
    raise SdistError(f"{page} has no source archive of {pin.name} {pin.version} with a hash of the lock")


def pip_index() -> str:
    """Return the URL of pip's index, with its credentials. Raise SdistError if pip does not report it."""
    command = [sys.executable, "-c", PIP_INDEX]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_SECONDS, check=False)
    if done.returncode or not done.stdout.strip():
        raise SdistError("pip does not report its package index; set PIP_INDEX_URL, or --index")
    return done.stdout.strip()


def main(words: Sequence[str] | None = None) -> int:
    """Download; 1 if that fails."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release.sdist", description=__doc__)
    parser.add_argument("lock", metavar="LOCK", type=Path)
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    parser.add_argument("--index", metavar="URL", help="package index; default: that of pip")
    chosen = parser.parse_args(words)
    try:
        index = Index.of(chosen.index or pip_index())
        for pin in pins(chosen.lock.read_text()):
            print(fetch(pin, index, chosen.folder), flush=True)
    except (SdistError, OSError) as error:
        print(f"rljob release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
