"""Look for steps that the command has saved, and delete old ones, in a thread of its own: the volume may hang."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

from rljob_runtime.command import attempt_folders
from rljob_runtime.command.attempt_folders import Saved
from rljob_runtime.command.retention import Retention
from rljob_runtime.contract import CommandCheckpoint
from rljob_runtime.files import folder_bytes
from rljob_runtime.outcomes import FencedError, RefusedError

LOOK_SECONDS = 10.0
LAST_LOOK_SECONDS = 30.0
"""For the look after the command has ended."""
SIZE_SECONDS = 2.0
"""For measuring a step, as in training_attempt.py."""


class SavedWatch:
    """Looks at intervals, and a last time when the command has ended."""

    def __init__(
        self, folder: Path, layout: CommandCheckpoint, keep: Retention | None = None, every: float = LOOK_SECONDS
    ) -> None:
        self._folder, self._layout, self._keep, self._every = folder, layout, keep, every
        self._last = threading.Event()
        self._problem = ""
        self.found: tuple[Saved, int | None] | None = None
        """The newest complete step and its size in bytes; None before the first one."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def finish(self) -> None:
        """Look a last time, within a limit."""
        self._last.set()
        self._thread.join(LAST_LOOK_SECONDS)
        if self._thread.is_alive():
            self._report(f"the volume did not respond within {LAST_LOOK_SECONDS:g} s")

    def _run(self) -> None:
        self._look()
        while not self._last.wait(self._every):
            self._look()
        self._look()

    def _look(self) -> None:
        try:
            saved = attempt_folders.newest(self._folder, self._layout)
        except (OSError, RefusedError) as error:
            self._report(str(error))
            return
        if saved is not None and (self.found is None or self.found[0].path != saved.path):
            self.found = saved, _size(saved.entry)
            self._delete_old()

    def _delete_old(self) -> None:
        if self._keep is None:
            return
        try:
            self._keep.apply(self._folder, self._layout)
        except FencedError:
            self._keep = None  # the launcher's own check ends the attempt
        except (OSError, RefusedError) as error:
            self._report(f"old steps are not deleted: {error}")

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            print(f"rljob: saved steps in {self._folder}: {problem}", file=sys.stderr, flush=True)  # noqa: T201


def _size(entry: Path) -> int | None:
    try:
        return folder_bytes(entry, SIZE_SECONDS) if entry.is_dir() else entry.stat().st_size
    except OSError:
        return None
