"""Write a file so that a reader sees the old content or the new one, never a part; and measure a folder.

Writing is for the spool, the owner file and verl's tracker. `durable` also survives the loss of the machine's
power; the spool does not need it, because an emptyDir goes with its node.
"""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path


def write_atomically(path: Path, data: bytes, *, durable: bool = False) -> None:
    """Replace `path` by `data`: write beside it, then rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        with scratch.open("wb") as file:
            file.write(data)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def folder_bytes(folder: Path, seconds: float) -> int | None:
    """Add up the sizes of a folder's files; None if it cannot be read, or not within the time."""
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
