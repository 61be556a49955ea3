"""Operations on files that other processes read, that are large, or that are on a volume that may hang.

A reader sees either the old or the new content of a file, never a part. The spool and the owner file are written this
way. `durable` also protects against a power failure; the spool does not need it, because an emptyDir does not outlive
its node.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def file_named_in_errors(path: Path) -> Iterator[None]:
    """Add the file's name to an OSError, because errors of a read or write do not contain it."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(path)
        raise


def write_atomically(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace `path` by `data`: write a file beside it, then rename it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with file_named_in_errors(path), scratch.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def folder_bytes(folder: Path, seconds: float) -> int | None:
    """Return the total size of a folder's files; None if it is not readable, or not within `seconds`."""
    deadline = time.monotonic() + seconds
    total, pending = 0, [folder]
    try:
        while pending:
            with os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if time.monotonic() > deadline:
                        return None
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
                    else:
                        total += entry.stat(follow_symlinks=False).st_size
    except OSError:
        return None
    return total


def run_with_timeout(seconds: float, do: Callable[[], None], otherwise: str = "") -> bool:
    """Run `do`, which may hang or fail; return whether it succeeded within `seconds`. Otherwise print `otherwise`."""
    failed: list[OSError] = []

    def run() -> None:
        try:
            do()
        except OSError as error:
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(seconds)
    if not failed and not thread.is_alive():
        return True
    if otherwise:
        why = str(failed[0]) if failed else f"no answer within {seconds:g} s"
        print(f"rljob: {otherwise}: {why}", file=sys.stderr, flush=True)  # noqa: T201
    return False
