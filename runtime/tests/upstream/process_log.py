"""Record what each Python process of a run does: collections of garbage, and passes of verl's ranks over a model.

Copied to `sitecustomize.py`, which Python imports when it starts. A process writes `FOLDER/<pid>.json` when it freezes
or begins a pass, and at most twice a second when it collects: a thread would keep the fork server from forking. FOLDER
is the variable PROCESS_LOG.
"""

from __future__ import annotations

import functools
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

FOLDER = os.environ.get("PROCESS_LOG")
SECONDS = 0.5
STACK = 4
RANKS, PASSES = "verl.workers.engine_workers", ("compute_log_prob", "update_actor")
"""Module and methods of verl's ranks (class ActorRolloutRefWorker, 0.9.1)."""


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
        self.passes = dict.fromkeys(PASSES, 0)
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

    def counted(self, name: str, method: Callable[..., Any]) -> Callable[..., Any]:
        """Return a method of a rank that counts its calls, with the attributes by which verl finds it."""

        @functools.wraps(method)
        def count(*arguments: Any, **named: Any) -> Any:
            self.passes[name] += 1
            self.write()
            return method(*arguments, **named)

        return count

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
            "passes": self.passes,
        }
        temporary = self.folder / f".{os.getpid()}"
        temporary.write_text(json.dumps(seen))
        temporary.replace(self.folder / f"{os.getpid()}.json")


class CountPasses(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Imports the module of verl's ranks and counts their passes."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._found: importlib.machinery.ModuleSpec | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return this loader for that module only, once."""
        del target
        if fullname != RANKS or self._found is not None:
            return None
        self._found = importlib.machinery.PathFinder.find_spec(fullname, path)
        return self._found and importlib.util.spec_from_loader(fullname, self, origin=self._found.origin)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module's own code, and replace the methods."""
        assert self._found is not None
        assert self._found.loader is not None
        module.__file__ = self._found.origin
        self._found.loader.exec_module(module)
        for name in PASSES:
            ranks = module.ActorRolloutRefWorker
            setattr(ranks, name, self._log.counted(name, getattr(ranks, name)))


if FOLDER:
    LOG = Log(Path(FOLDER))
    sys.meta_path.insert(0, CountPasses(LOG))
