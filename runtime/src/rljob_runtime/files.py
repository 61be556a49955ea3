"""Write a file so that a reader sees the old content or the new one, never a part.

Used for the spool, the owner file and verl's checkpoint tracker. `durable` also survives the loss of the machine's
power; the spool does not need it, because an emptyDir goes with its node.
"""

from __future__ import annotations

import os
import threading
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
