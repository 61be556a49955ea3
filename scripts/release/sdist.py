"""Download the source archives of a lock: `python -m scripts.release.sdist LOCK FOLDER`.

pip has no such command: it runs the build of an archive to read its name, and installs what that build wants, which for
vllm and arctic-inference is a torch of several gigabytes. This asks the index for its files (PEP 691), takes the
archive whose SHA-256 the lock has, and compares the content.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urljoin, urlsplit

LISTING = "application/vnd.pypi.simple.v1+json"
LISTING_BYTES = 64 << 20
SECONDS = 60
"""Without a byte from the index."""
ARCHIVES = (".tar.gz", ".zip")
CHUNK = 1 << 20


class SdistError(Exception):
    """An archive cannot be downloaded; the message is for the user."""


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


def fetch(pin: Pin, index: str, folder: Path) -> Path:
    """Return the archive of a package, downloaded unless the folder has it."""
    page = urljoin(index.rstrip("/") + "/", re.sub(r"[-_.]+", "-", pin.name).lower() + "/")
    name, url, digest = _archive(pin, page)
    target = folder / name
    if target.exists() and hashlib.sha256(target.read_bytes()).hexdigest() == digest:
        return target
    folder.mkdir(parents=True, exist_ok=True)
    partial, seen = target.with_name(f"{name}.part"), hashlib.sha256()
    with _open(url) as answer, partial.open("wb") as file:
        while chunk := answer.read(CHUNK):
            seen.update(chunk)
            file.write(chunk)
    if seen.hexdigest() != digest:
        partial.unlink()
        raise SdistError(f"{url} has SHA-256 {seen.hexdigest()}, and the lock {digest}; the file was deleted")
    partial.rename(target)
    return target


def _archive(pin: Pin, page: str) -> tuple[str, str, str]:
    """Return name, URL and SHA-256 of the archive."""
    with _open(page, LISTING) as answer:
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


def _open(url: str, accept: str = "*/*") -> HTTPResponse:
    if urlsplit(url).scheme not in ("http", "https"):
        raise SdistError(f"{url}: no address of http or https")
    request = urllib.request.Request(url, headers={"Accept": accept})  # noqa: S310 - checked above
    try:
        answer: HTTPResponse = urllib.request.urlopen(request, timeout=SECONDS)  # noqa: S310 - checked above
    except OSError as error:
        raise SdistError(f"{url}: {error}") from None
    return answer


def main(words: Sequence[str] | None = None) -> int:
    """Download; 1 if that fails."""
    parser = argparse.ArgumentParser(prog="python -m scripts.release.sdist", description=__doc__)
    parser.add_argument("lock", metavar="LOCK", type=Path)
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    index = os.environ.get("PIP_INDEX_URL")
    parser.add_argument("--index", default=index, metavar="URL", help="package index; default: PIP_INDEX_URL")
    chosen = parser.parse_args(words)
    if not chosen.index:
        print("rljob release: no package index: set PIP_INDEX_URL, or --index", file=sys.stderr)
        return 1
    try:
        for pin in pins(chosen.lock.read_text()):
            print(fetch(pin, chosen.index, chosen.folder), flush=True)
    except (SdistError, OSError) as error:
        print(f"rljob release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
