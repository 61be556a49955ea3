"""Record what the garbage collector does in each Python process of a run. Copied to `sitecustomize.py`.

Python imports that module when it starts. A process writes `FOLDER/<pid>.json` when it freezes, and at most twice a
second when it collects: a thread would keep the fork server from forking. FOLDER is the variable PROCESS_LOG.
"""

from __future__ import annotations

import gc
import json
import os
import time
import traceback
from pathlib import Path

FOLDER = os.environ.get("PROCESS_LOG")
SECONDS = 0.5
STACK = 4


class Log:
    """What happened in this process."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.begin()
        self._freeze = gc.freeze
        gc.freeze = self.freeze
        gc.callbacks.append(self.watch)
        os.register_at_fork(after_in_child=self.begin)

    def begin(self) -> None:
        """Forget what happened in the process from which this one was forked."""
        self.freezes: list[list[str]] = []
        """Functions on the stack of each call of `gc.freeze`."""
        self.pauses: list[tuple[float, int, float]] = []
        self._begun = self._written = 0.0

    def freeze(self) -> None:
        """Record a call of `gc.freeze`."""
        self._freeze()
        self.freezes.append([frame.name for frame in traceback.extract_stack(limit=STACK)])
        self.write()

    def watch(self, phase: str, info: dict[str, int]) -> None:
        """Record a collection."""
        if phase == "start":
            self._begun = time.perf_counter()
            return
        self.pauses.append((time.time(), info["generation"], time.perf_counter() - self._begun))
        if time.monotonic() - self._written > SECONDS:
            self.write()

    def write(self) -> None:
        """Replace this process's file."""
        self._written = time.monotonic()
        name = Path("/proc/self/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        seen = {
            "name": name,
            "freezes": self.freezes,
            "frozen": gc.get_freeze_count(),
            "enabled": gc.isenabled(),
            "pauses": self.pauses,
        }
        temporary = self.folder / f".{os.getpid()}"
        temporary.write_text(json.dumps(seen))
        temporary.replace(self.folder / f"{os.getpid()}.json")


if FOLDER:
    LOG = Log(Path(FOLDER))
