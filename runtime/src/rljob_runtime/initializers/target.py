"""The folder that a download fills, and its records, in the folder `.rljob` of it.

`parts/` holds begun files, `verified` one line for each file that was compared with its digest, SHA256SUMS the list of
a whole download in the form of `sha256sum`, and `done` the request that it fulfils. A killed program leaves all of it
in a state from which the next one continues. One program at a time fills a folder: others wait for its lock.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from rljob_runtime.contract import ExitCode
from rljob_runtime.files import write_atomically
from rljob_runtime.initializers.error import RequestError

RECORDS = ".rljob"
LOCK_PAUSE_SECONDS = 1.0
CHUNK = 4 * 2**20


@dataclass
class Target:
    """The folder."""

    folder: Path
    _verified: dict[str, tuple[int, int, str]] = field(default_factory=dict, init=False)
    """Path -> size, time of change and SHA-256 of a file that was verified."""
    _guard: threading.Lock = field(default_factory=threading.Lock, init=False)

    def __post_init__(self) -> None:
        """Create the folder and read the records."""
        (self.records / "parts").mkdir(parents=True, exist_ok=True)
        self._read_verified()

    @property
    def records(self) -> Path:
        """Return the folder of the records."""
        return self.folder / RECORDS

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Hold the folder's lock. The Job's deadline bounds the wait; the kernel releases that of a dead process."""
        with (self.records / "lock").open("a") as file:
            said = False
            while not _try_lock(file.fileno()):
                if not said:
                    say(f"waiting for another program that fills {self.folder}")
                    said = True
                time.sleep(LOCK_PAUSE_SECONDS)
            self._read_verified()
            yield

    def part(self, path: str, identity: str) -> Path:
        """Return where the begun file of this content is."""
        name = hashlib.sha256(f"{path}\n{identity}".encode()).hexdigest()[:40]
        return self.records / "parts" / name

    def known_digest(self, path: str) -> str | None:
        """Return the SHA-256 of a file that was verified and has not changed since; None for any other."""
        known = self._verified.get(path)
        try:
            found = (self.folder / path).stat()
        except OSError:
            return None
        return known[2] if known is not None and known[:2] == (found.st_size, found.st_mtime_ns) else None

    def keep(self, part: Path, path: str, sha256: str) -> None:
        """Give a verified file its name."""
        final = self.folder / path
        final.parent.mkdir(parents=True, exist_ok=True)
        if part != final:
            part.replace(final)
        self.note(path, sha256)

    def note(self, path: str, sha256: str) -> None:
        """Remember that a file has this digest."""
        found = (self.folder / path).stat()
        entry = (found.st_size, found.st_mtime_ns, sha256)
        with self._guard, (self.records / "verified").open("a") as file:
            self._verified[path] = entry
            file.write(json.dumps([path, *entry]) + "\n")

    def write_sums(self, paths: list[str]) -> str:
        """Write SHA256SUMS of these files, and return its own SHA-256."""
        lines = [f"{self._verified[path][2]}  {path}\n" for path in sorted(paths)]
        text = "".join(lines).encode()
        write_atomically(self.records / "SHA256SUMS", text, durable=True)
        return hashlib.sha256(text).hexdigest()

    def require_room(self, needed: int) -> None:
        """Raise RequestError if the volume has no room for this many bytes more."""
        free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise full(self.folder, f"{size_text(needed)} are needed and {size_text(free)} are free")

    def finish(self, request: str, outputs: list[str]) -> None:
        """Record that a request is fulfilled by these files."""
        sizes = {name: (self.folder / name).stat().st_size for name in outputs}
        write_atomically(self.records / "done", json.dumps([request, sizes]).encode(), durable=True)
        shutil.rmtree(self.records / "parts", ignore_errors=True)

    def is_done(self, request: str) -> bool:
        """Report whether the request is fulfilled: the same one was, and its files have their sizes."""
        try:
            stated, sizes = json.loads((self.records / "done").read_bytes())
            return stated == request and all(
                (self.folder / name).stat().st_size == size for name, size in sizes.items()
            )
        except (OSError, ValueError, TypeError, AttributeError):
            return False

    def _read_verified(self) -> None:
        try:
            lines = (self.records / "verified").read_text(errors="replace").splitlines()
        except FileNotFoundError:
            return
        for line in lines:
            try:
                path, size, changed, digest = json.loads(line)
            except (ValueError, TypeError):
                continue  # A kill in the middle of a write; the file is verified again.
            self._verified[str(path)] = (size, changed, digest)


def digests(path: Path, size: int) -> tuple[str, str]:
    """Return SHA-256 of a file, and Git's SHA-1 of a blob with its content."""
    sha256, blob = hashlib.sha256(), git_blob(size)
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            sha256.update(chunk)
            blob.update(chunk)
    return sha256.hexdigest(), blob.hexdigest()


def git_blob(size: int) -> hashlib._Hash:
    """Return the hash that Git begins for a blob of a size."""
    return hashlib.sha1(f"blob {size}\0".encode(), usedforsecurity=False)


def full(folder: Path, problem: str) -> RequestError:
    """Return the error of a volume without room."""
    return RequestError(ExitCode.ENVIRONMENT, f"{folder}: {problem}; enlarge the volume or free some")


def is_full(error: OSError) -> bool:
    """Report whether a write failed for lack of room."""
    return error.errno in (errno.ENOSPC, errno.EDQUOT)


def size_text(size: float) -> str:
    """Return a size for people."""
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def say(text: str) -> None:
    """Print a line of the log. The operator copies the last one into the status."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # A file system without locks cannot detect other users; they notice by what they overwrite.
        return error.errno not in (errno.EWOULDBLOCK, errno.EACCES)
    return True
