"""Transfer the files of a repository or a folder into a target: several at a time, each from the byte where it ended.

A file is compared with the digest that its source states before it gets its name. One that differs is fetched once more
from its beginning, because a part may be from a proxy's error page; the second time the source is wrong.
"""

from __future__ import annotations

import hashlib
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import BinaryIO, Protocol

from rljob_runtime.contract import ExitCode
from rljob_runtime.initializers.error import RequestError, StoppedError
from rljob_runtime.initializers.hubs import RemoteFile
from rljob_runtime.initializers.target import CHUNK, Target, digests, full, git_blob, is_full, say, size_text
from rljob_runtime.initializers.web import Client

AT_A_TIME = 4
PROGRESS_SECONDS = 5.0
TOO_LONG = "too long"
"""In place of the digests of a file that does not end."""


class Source(Protocol):
    """Where files come from."""

    def chunks(self, file: RemoteFile, start: int) -> AbstractContextManager[tuple[int, Iterator[bytes]]]:
        """Begin to read at a byte. Return the byte at which it really begins, which is 0 if it cannot continue."""
        ...


@dataclass(frozen=True)
class HubSource:
    """Files of a hub."""

    client: Client

    @contextmanager
    def chunks(self, file: RemoteFile, start: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Begin an answer of the hub."""
        with self.client.open(file.place, start) as answer:
            continues = answer.status == HTTPStatus.PARTIAL_CONTENT
            stated = answer.headers.get("Content-Range", "")
            if continues and not stated.startswith(f"bytes {start}-"):
                raise ConnectionError(f"{file.path}: asked for bytes from {start}, got {stated[:60]!r}")
            # read1 returns what has arrived, so that a kill loses little.
            yield (start if continues else 0), iter(lambda: answer.read1(CHUNK), b"")


@dataclass(frozen=True)
class FolderSource:
    """Files of a folder."""

    @contextmanager
    def chunks(self, file: RemoteFile, start: int) -> Iterator[tuple[int, Iterator[bytes]]]:
        """Open the file."""
        with Path(file.place).open("rb") as opened:
            opened.seek(start)
            yield start, iter(lambda: opened.read(CHUNK), b"")


@dataclass
class Progress:
    """Counts bytes and files, and prints both from time to time."""

    bytes_all: int
    files_all: int
    bytes_done: int = 0
    files_done: int = 0
    moved: int = 0
    """Bytes that this program has transferred."""
    _begun: float = field(default_factory=time.monotonic)
    _said: float = 0.0
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def add(self, count: int, *, files: int = 0, moved: bool = True) -> None:
        """Add to the progress; the count is negative when a file begins again."""
        with self._guard:
            self.bytes_done += count
            self.files_done += files
            self.moved += max(count, 0) if moved else 0
            if (now := time.monotonic()) - self._said >= PROGRESS_SECONDS:
                self._said = now
                say(self.line(now))

    def line(self, now: float) -> str:
        """Return `3.2 GiB of 15.3 GiB (21 %), 2 of 14 files, 85 MiB/s`."""
        share = 100 * self.bytes_done // max(self.bytes_all, 1)
        rate = self.moved / max(now - self._begun, 0.001)
        return (
            f"{size_text(self.bytes_done)} of {size_text(self.bytes_all)} ({share} %), "
            f"{self.files_done} of {self.files_all} files, {size_text(rate)}/s"
        )


@dataclass
class Transfer:
    """A transfer of several files."""

    source: Source
    target: Target
    client: Client
    """Counts failures and tries again; it has no endpoint if the source is a folder."""
    progress: Progress

    def run(self, files: list[RemoteFile]) -> None:
        """Transfer all files that are not there. Raises RequestError; the other files then stop soon."""
        pool = ThreadPoolExecutor(AT_A_TIME)
        try:
            futures = [pool.submit(self._file, file) for file in files]
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
            failed = [error for future in done if (error := future.exception()) is not None]
            if failed:
                # Of several, that of a file that stopped for another one is no cause.
                raise min(failed, key=lambda error: isinstance(error, StoppedError))
        finally:
            self.client.stopped.set()
            pool.shutdown(cancel_futures=True)
        say(self.progress.line(time.monotonic()))

    def _file(self, file: RemoteFile) -> None:
        if self._is_there(file):
            self.progress.add(file.size, files=1, moved=False)
            return
        part = self.target.part(file.path, file.identity)
        for last in (False, True):
            found = self.client.with_retries(
                file.path, lambda: self._fetch(file, part), lambda: part.stat().st_size if part.exists() else 0
            )
            problem = mismatch(file, *found)
            if problem is None:
                self.target.keep(part, file.path, found[0])
                self.progress.add(0, files=1)
                return
            self.progress.add(-part.stat().st_size)
            part.unlink()
            say(f"{file.path}: {problem}")
            if last:
                raise RequestError(
                    ExitCode.ENVIRONMENT,
                    f"{file.path}: {problem}, twice; the mirror serves other content than it lists",
                )

    def _is_there(self, file: RemoteFile) -> bool:
        final = self.target.folder / file.path
        try:
            if final.stat().st_size != file.size:
                return False
        except FileNotFoundError:
            return False
        known = self.target.known_digest(file.path)
        if known is not None and file.sha256 in ("", known):
            return True
        found = digests(final, file.size)
        if mismatch(file, *found) is not None or not (file.sha256 or file.git_blob):
            return False
        self.target.note(file.path, found[0])
        return True

    def _fetch(self, file: RemoteFile, part: Path) -> tuple[str, str]:
        """Complete the part and return its digests."""
        part.parent.mkdir(parents=True, exist_ok=True)
        with part.open("ab+") as out:
            begun = _Begun(out, file, self.progress)
            begun.read_back()
            try:
                self._complete(begun, file)
            except BaseException as error:
                # The next try counts what is in the part.
                self.progress.add(-begun.size)
                if isinstance(error, OSError) and is_full(error):
                    raise full(self.target.folder, "no room is left") from None
                raise
        return begun.digests()

    def _complete(self, begun: _Begun, file: RemoteFile) -> None:
        if begun.size < file.size:
            with self.source.chunks(file, begun.size) as (start, chunks):
                if start != begun.size:
                    begun.restart()
                for chunk in chunks:
                    begun.take(chunk)
                    if begun.is_too_long:
                        return
                    self._require_running()
        if begun.size < file.size:
            raise ConnectionError(f"the answer ended at byte {begun.size} of {file.size}")
        begun.out.flush()
        os.fsync(begun.out.fileno())

    def _require_running(self) -> None:
        if self.client.stopped.is_set():
            raise StoppedError


@dataclass
class _Begun:
    """A file that is being written, with its digests so far."""

    out: BinaryIO
    file: RemoteFile
    progress: Progress
    size: int = 0

    def __post_init__(self) -> None:
        self._sha256, self._blob = hashlib.sha256(), git_blob(self.file.size)

    def read_back(self) -> None:
        """Continue with what is in the file already."""
        self.out.seek(0)
        while chunk := self.out.read(CHUNK):
            self._count(chunk)
        self.progress.add(self.size, moved=False)

    def restart(self) -> None:
        """Forget what is in the file."""
        self.progress.add(-self.size)
        self.out.truncate(0)
        self.size = 0
        self._sha256, self._blob = hashlib.sha256(), git_blob(self.file.size)

    def take(self, chunk: bytes) -> None:
        """Append to the file, unless it becomes longer than its source states."""
        self._count(chunk)
        self.progress.add(len(chunk))
        if not self.is_too_long:
            self.out.write(chunk)

    @property
    def is_too_long(self) -> bool:
        return self.size > self.file.size

    def digests(self) -> tuple[str, str]:
        """Return SHA-256 and Git's hash."""
        return (TOO_LONG, TOO_LONG) if self.is_too_long else (self._sha256.hexdigest(), self._blob.hexdigest())

    def _count(self, chunk: bytes) -> None:
        self.size += len(chunk)
        self._sha256.update(chunk)
        self._blob.update(chunk)


def mismatch(file: RemoteFile, sha256: str, blob: str) -> str | None:
    """Return how the content differs from what the source states; None if it does not, or nothing is stated."""
    if sha256 == TOO_LONG:
        return f"it is longer than the {file.size} bytes that are listed"
    if file.sha256 and sha256 != file.sha256:
        return f"its SHA-256 is {sha256}, and {file.sha256} is listed"
    if file.git_blob and blob != file.git_blob:
        return f"its Git hash is {blob}, and {file.git_blob} is listed"
    return None
