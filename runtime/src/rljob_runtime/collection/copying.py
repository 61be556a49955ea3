"""Copy files of a node within a number of files, of bytes and of seconds: the newest of each source first.

Who writes the logs decides about their number and size, so every part has a limit. Of a file that is too long, the end
is kept. A full or failing volume ends the copying, and what is there stays.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rljob_runtime.collection.sources import Source, entries, is_wanted

SEEN_MAX = 20_000
"""Files of a source that are looked at."""
FILES_MAX = 2_000
"""Files of a node that are copied: 16 ranks with CANN's default of ten files each, of host and device, use 400."""
FILE_BYTES = 20 << 20
"""CANN begins another file at 20 MB (ASCEND_HOST_LOG_FILE_NUM), and ascend-fd reads none that is larger."""
CHUNK_BYTES = 1 << 20


@dataclass
class Budget:
    """What a node may still copy."""

    bytes: int
    deadline: float
    """Of `time.monotonic`."""
    files: int = FILES_MAX

    @property
    def is_spent(self) -> bool:
        """Whether nothing more may be copied."""
        return self.files <= 0 or self.bytes <= 0 or time.monotonic() >= self.deadline


@dataclass
class Copied:
    """What was copied."""

    files: int = 0
    bytes: int = 0
    left_out: int = 0
    notes: list[str] = field(default_factory=list)


def copy_sources(wanted: Iterable[Source], target: Path, budget: Budget) -> Copied:
    """Copy the files of all sources to `target`."""
    done = Copied()
    for source in wanted:
        _copy(source, target / source.kind, budget, done)
    return done


def _copy(source: Source, target: Path, budget: Budget, done: Copied) -> None:
    found = []
    for entry in entries(source.root, SEEN_MAX):
        try:
            changed = entry.stat(follow_symlinks=False).st_mtime
        except OSError:
            continue  # CANN deletes its oldest files
        if changed >= source.since and is_wanted(source, entry.name):
            found.append((changed, entry.path))
    for number, (_, path) in enumerate(sorted(found, reverse=True)):
        if budget.is_spent:
            done.left_out += len(found) - number
            return
        place = target / f"{os.path.relpath(path, source.root)}{source.suffix}"
        try:
            size = copy_end(Path(path), place, min(FILE_BYTES, budget.bytes))
        except FileNotFoundError:
            continue
        except PermissionError as error:
            done.left_out += 1
            done.notes.append(str(error))
            continue
        except OSError as error:
            done.left_out += len(found) - number
            done.notes.append(f"copying ended: {error}")
            budget.bytes = 0
            return
        if size:
            done.files, done.bytes = done.files + 1, done.bytes + size
            budget.files, budget.bytes = budget.files - 1, budget.bytes - size


def copy_end(source: Path, target: Path, limit: int) -> int:
    """Copy the last `limit` bytes of a regular file; return the number of bytes, 0 for anything else."""
    # Not blocking: by now, the name may belong to a pipe.
    with os.fdopen(os.open(source, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as file:
        known = os.fstat(file.fileno())
        if not stat.S_ISREG(known.st_mode) or known.st_size == 0:
            return 0
        file.seek(max(0, known.st_size - limit))
        target.parent.mkdir(parents=True, exist_ok=True)
        left = limit
        with target.open("wb") as copy:
            # The file may grow in the meantime.
            while left > 0 and (chunk := file.read(min(CHUNK_BYTES, left))):
                copy.write(chunk)
                left -= len(chunk)
    os.utime(target, (known.st_mtime, known.st_mtime))
    return limit - left
