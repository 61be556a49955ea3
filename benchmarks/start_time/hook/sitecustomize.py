"""Note when this process begins, when it is forked, and how long each library takes to import.

Python imports this module in every process whose `PYTHONPATH` names its folder. A library's seconds are its own: what
another watched library takes inside its import is that one's.
"""

from __future__ import annotations

import fcntl
import importlib.machinery
import json
import os
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER_VARIABLE = "START_TIME_FOLDER"
EVENTS_FILE = "events.jsonl"
FIRST_FILE = 512
WATCHED = frozenset({"ray", "tensordict", "torch", "transfer_queue", "transformers", "verl", "vllm"})


class Stack(threading.local):
    """The watched imports that are under way in a thread, with the seconds of those inside each."""

    def __init__(self) -> None:
        self.imports: list[tuple[str, list[float]]] = []


class Watch:
    """An import finder that finds modules as Python's own does, and measures how long they take to import."""

    def __init__(self, folder: str) -> None:
        opened = os.open(Path(folder) / EVENTS_FILE, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        # Out of the way of numbers that a process expects to have.
        self._file = fcntl.fcntl(opened, fcntl.F_DUPFD_CLOEXEC, FIRST_FILE)
        os.close(opened)
        self._stack = Stack()

    def note(self, event: str, **values: Any) -> None:  # noqa: ANN401 - JSON
        """Append an event; one write, so that processes do not mix theirs."""
        line = {"event": event, "pid": os.getpid(), "time": time.time(), **values}
        os.write(self._file, json.dumps(line).encode() + b"\n")

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Find a module of a watched library unless the library is being imported already."""
        root, imports = name.partition(".")[0], self._stack.imports
        if root not in WATCHED or (imports and imports[-1][0] == root):
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and isinstance(spec.loader, importlib.machinery.SourceFileLoader):
            self._time(root, spec.loader)
        return spec

    def _time(self, root: str, loader: Any) -> None:  # noqa: ANN401 - an attribute of the instance is set
        execute, imports = loader.exec_module, self._stack.imports

        def timed(module: ModuleType) -> None:
            inside = [0.0, 0.0]
            imports.append((root, inside))
            wall, processor = time.perf_counter(), time.thread_time()
            try:
                execute(module)
            finally:
                wall, processor = time.perf_counter() - wall, time.thread_time() - processor
                imports.pop()
                if imports:
                    outer = imports[-1][1]
                    outer[0], outer[1] = outer[0] + wall, outer[1] + processor
                self.note("import", library=root, wall=wall - inside[0], processor=processor - inside[1])

        loader.exec_module = timed


def begin(folder: str) -> None:
    """Watch this process and those that are forked from it."""
    watch = Watch(folder)
    command = Path("/proc/self/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    watch.note("exec", command=command[:200])
    os.register_at_fork(after_in_child=lambda: watch.note("fork"))
    sys.meta_path.insert(0, watch)


if os.environ.get(FOLDER_VARIABLE):
    begin(os.environ[FOLDER_VARIABLE])
