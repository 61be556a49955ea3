"""Saves of FSDP2 whose files are written while the run continues.

Each rank copies its part into host memory, as the bytes of its files, and returns; a thread of it writes them. The
folder of the save gets the name of its step once every rank has written (fenced_save.py): a kill before that loses this
save and none before it. Two saves never overlap. verl saves asynchronously with Megatron only
(verl/trainer/config/config.py:37, 0.9.1).

The functions of ranks run in the processes that hold the model, by Ray's `__ray_call__`.
"""

from __future__ import annotations

import contextlib
import functools
import io
import threading
import time
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MARK = "_rljob_background"
REQUEST = ".background"
"""File in the folder of a save: its ranks may write behind."""
WRITTEN, FAILED = ".written", ".failed"
"""Endings of the files by which a rank reports, beside that one."""
POLL_SECONDS = 0.5
_begun: list[str] = []
_writers: list[tuple[Path, threading.Thread]] = []


class Copying(types.ModuleType):
    """Replaces `torch` in a module whose saves are to be copied."""

    def __init__(self, torch: Any, save: Callable[[Any, Any], None]) -> None:  # noqa: ANN401 - torch has no types here
        super().__init__("torch")
        self._torch = torch
        self.save = save

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever torch has
        return getattr(self._torch, name)


@dataclass
class Writer:
    """The part of one rank in one save."""

    place: Path
    name: str
    files: list[tuple[Path, io.BytesIO]] = field(default_factory=list)

    def keep(self, content: Any, path: str) -> None:  # noqa: ANN401 - whatever torch saves
        """Copy what a file is to contain."""
        import torch

        buffer = io.BytesIO()
        torch.save(content, buffer)
        self.files.append((Path(path), buffer))

    def begin(self) -> None:
        """Create the file that will be the report: a volume that is full by then has room for its new name."""
        self._scratch.touch()

    def write(self) -> None:
        """Write the files, and report the end."""
        report, path = WRITTEN, self._scratch
        try:
            while self.files:
                path, buffer = self.files.pop(0)
                path.write_bytes(buffer.getbuffer())
        except Exception as error:  # noqa: BLE001 - the trainer raises it
            report = FAILED
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                self._scratch.write_text(f"{type(error).__name__}: {error}")
        # Without the folder, another attempt has taken over.
        with contextlib.suppress(OSError):
            self._scratch.rename(self.place / f"{self.name}{report}")

    @property
    def _scratch(self) -> Path:
        return self.place / f"{self.name}.scratch"


def install_in_rank(_: object) -> bool:
    """Let FSDP's checkpoint manager in this process copy what it saves, where a save asks for that.

    Return whether it can: another verl may have another manager.
    """
    try:
        from verl.utils.checkpoint import fsdp_checkpoint_manager as module

        original = module.FSDPCheckpointManager.save_checkpoint
    except (ImportError, AttributeError):
        return False
    if hasattr(original, MARK):
        return True

    @functools.wraps(original)
    def save(self: Any, local_path: str | None, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - verl's
        place = None if local_path is None else Path(local_path).parent.parent
        if local_path is None or place is None or not (place / REQUEST).exists():
            original(self, local_path, *arguments, **options)
            return
        _finish_writers(before=place)
        writer = Writer(place, f"{Path(local_path).name}-{self.rank}")
        writer.begin()
        torch, module.torch = module.torch, Copying(module.torch, writer.keep)
        try:
            original(self, local_path, *arguments, **options)
        finally:
            module.torch = torch
        _begun.append(writer.name)
        thread = threading.Thread(target=writer.write, daemon=True)
        _writers.append((place, thread))
        thread.start()

    setattr(save, MARK, True)
    module.FSDPCheckpointManager.save_checkpoint = save
    return True


def begun_in_rank(_: object) -> list[str]:
    """Return the names under which this process reports the end of what it writes now."""
    found = [*_begun]
    _begun.clear()
    return found


def _finish_writers(before: Path | None = None) -> None:
    """Wait for what earlier saves write; the critic is part of the save of the actor."""
    for entry in [entry for entry in _writers if entry[0] != before]:
        entry[1].join()
        _writers.remove(entry)


@dataclass
class PendingSave:
    """A save whose ranks write, as the trainer sees it."""

    step: int
    made: Path
    """Folder of the step within that of the save."""
    names: Sequence[str]
    """Under which the ranks report."""
    publish: Callable[[], object]
    """Gives the step its name."""
    began: float
    seconds: float = 0.0
    """From the begin of the save until the step had its name."""
    completed: float = 0.0
    """Unix time at which it had."""
    error: BaseException | None = None
    _thread: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        """Wait for the ranks in a thread."""
        self._thread = threading.Thread(target=self._complete, daemon=True)
        self._thread.start()

    def _complete(self) -> None:
        try:
            self._await_ranks()
            self.publish()
        except BaseException as error:  # noqa: BLE001 - raised by `settle`, in the trainer's thread
            self.error = error
        self.seconds, self.completed = time.monotonic() - self.began, time.time()

    def _await_ranks(self) -> None:
        place, left = self.made.parent, list(self.names)
        while left := [name for name in left if not _exists(place / f"{name}{WRITTEN}")]:
            for name in left:
                if _exists(failed := place / f"{name}{FAILED}"):
                    said = failed.read_text() or "it could not write"
                    raise OSError(f"step {self.step} was not saved: rank {name}: {said}")
            if not _exists(place, otherwise=True):
                raise OSError(f"step {self.step} was not saved: {place} was deleted")
            time.sleep(POLL_SECONDS)
        for name in (REQUEST, *(f"{name}{WRITTEN}" for name in self.names)):
            (place / name).unlink(missing_ok=True)

    def settled(self, timeout: float | None) -> bool:
        """Wait until the step has its name, and return whether it has. Raises what kept it from that."""
        self._thread.join(timeout)
        if self._thread.is_alive():
            return False
        if self.error is not None:
            raise self.error
        return True


def _exists(path: Path, *, otherwise: bool = False) -> bool:
    """Return whether a path exists. A volume that does not answer now may do so at the next look."""
    try:
        return path.exists()
    except OSError:
        return otherwise


def request(place: Path) -> None:
    """Ask the ranks of a save to write behind."""
    place.mkdir(parents=True)
    (place / REQUEST).touch()
