"""Where an attempt of a command saves, and which complete steps all attempts have saved.

A command does not check who owns the checkpoint folder. With the fence Attempt, each attempt therefore saves to
`<checkpoint.path>/<cluster>-attempt-<n>/`: a process of an earlier attempt that a lost node still runs cannot damage
the saves of a later one. A complete step counts in whichever of these folders it is. Nothing here writes or deletes.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.checkpoints import saved_steps
from rljob_runtime.contract import CheckpointFence, CheckpointLayout, CommandCheckpoint, ExitCode, JobConfig, quoted
from rljob_runtime.outcomes import RefusedError

STEP = "{step}"
VERL_PATTERN = f"global_step_{STEP}"
ATTEMPT_FOLDER = re.compile(r"(?!\.|set-aside-by-).+-attempt-\d{1,9}")
"""Not the folders that resume.set_aside makes, whose names end in the same way."""
STEP_DIGITS = r"\d{1,10}"
"""Leading zeros count as part of a step's name."""
ENTRIES_MAX = 100_000
"""Of a folder that is listed."""


@dataclass(frozen=True)
class Saved:
    """A step that a command has saved."""

    step: int
    path: Path
    """What `{checkpoint}` becomes."""
    root: Path
    """The folder to which its attempt saved."""
    entry: Path
    """The file or folder that has the step in its name: all of `path` below it belongs to this step."""
    complete: Path
    """Exists once the step is complete."""
    time: float
    """Modification time of `path`, by the volume's clock."""


def folder_of(job: JobConfig, attempt: int) -> Path | None:
    """Return the folder to which an attempt saves; None for a job that saves nothing."""
    if job.checkpoint_path is None or job.command is None or job.command.checkpoint is None:
        return None
    folder = Path(job.checkpoint_path)
    if job.command.checkpoint.fence is CheckpointFence.NONE:
        return folder
    return folder / f"{job.cluster_name}-attempt-{attempt}"


def require_layout(layout: CommandCheckpoint) -> None:
    """Raise RefusedError (exit 64) for a layout whose steps cannot be found."""
    if layout.layout is CheckpointLayout.PATTERN:
        _require_path("pattern", layout.pattern)
    if layout.complete is not None:
        _require_path("complete", layout.complete)


def newest(folder: Path, layout: CommandCheckpoint) -> Saved | None:
    """Return the newest complete step of all attempts; None if there is none. Raises OSError if it cannot be read."""
    return next(complete_steps(folder, layout), None)


def complete_steps(folder: Path, layout: CommandCheckpoint) -> Iterator[Saved]:
    """Yield the complete steps of all attempts, newest first: the highest step, of equal ones the last written.

    The check of a step reads its files, so it takes place only when the step is asked for.
    """
    steps = [saved for root in (folder, *attempt_folders(folder)) for saved in steps_in(root, layout)]
    tracked: dict[Path, int | None] = {}
    for saved in sorted(steps, key=lambda saved: (saved.step, saved.time), reverse=True):
        if layout.layout is CheckpointLayout.VERL and layout.complete is None:
            if saved.root not in tracked:
                tracked[saved.root] = saved_steps.tracked_step(saved.root)
            # verl writes the tracker last; with an asynchronous save, nothing else shows that the model is complete.
            last = tracked[saved.root]
            if last is not None and saved.step <= last and saved_steps.is_complete(saved.path):
                yield saved
        elif saved.complete.exists() and not _is_empty(saved.complete):
            yield saved


def _is_empty(path: Path) -> bool:
    """Return whether a path is a folder without entries, which a command has just created."""
    try:
        return next(path.iterdir(), None) is None
    except (NotADirectoryError, FileNotFoundError):
        return False


def attempt_folders(folder: Path) -> list[Path]:
    """Return the folders of attempts in a checkpoint folder, also those of earlier jobs."""
    return [entry for entry in _entries(folder) if ATTEMPT_FOLDER.fullmatch(entry.name) and entry.is_dir()]


def steps_in(root: Path, layout: CommandCheckpoint) -> Iterator[Saved]:
    """Yield the steps in the folder of one attempt, complete or not."""
    pattern = VERL_PATTERN if layout.layout is CheckpointLayout.VERL else layout.pattern or STEP
    for text, path, entry in _matches(root, Path(pattern).parts):
        try:
            time = path.stat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            continue
        complete = root / (layout.complete or pattern).replace(STEP, text)
        yield Saved(int(text), path, root, entry, complete, time)


def _matches(folder: Path, parts: tuple[str, ...]) -> Iterator[tuple[str, Path, Path]]:
    """Yield the digits of each step, its path, and the entry that has the digits in its name."""
    index = next(index for index, part in enumerate(parts) if STEP in part)
    parent = folder.joinpath(*parts[:index])
    first, *others = (re.escape(text) for text in parts[index].split(STEP))
    name = re.compile(f"{first}(?P<step>{STEP_DIGITS}){'(?P=step)'.join(others)}")
    for entry in _entries(parent):
        if match := name.fullmatch(entry.name):
            rest = (part.replace(STEP, match["step"]) for part in parts[index + 1 :])
            yield match["step"], entry.joinpath(*rest), entry


def _entries(folder: Path) -> list[Path]:
    try:
        entries = list(itertools.islice(folder.iterdir(), ENTRIES_MAX + 1))
    except (FileNotFoundError, NotADirectoryError):
        return []
    if len(entries) > ENTRIES_MAX:
        raise _refused(f"checkpoint.path: {folder} has more than {ENTRIES_MAX} entries; use a folder with fewer")
    return entries


def _require_path(field: str, text: str | None) -> None:
    path = Path(text or "")
    if STEP not in path.as_posix() or path.is_absolute() or ".." in path.parts:
        raise _refused(
            f"launcher.command.checkpoint.{field}: {quoted(text)} is not a path within the checkpoint folder with "
            f"{STEP} in it, such as step-{STEP}/state.pt"
        )


def _refused(message: str) -> RefusedError:
    return RefusedError(ExitCode.BAD_CONFIG, "CommandInvalid", message)
