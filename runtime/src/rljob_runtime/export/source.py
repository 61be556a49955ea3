"""The checkpoint to export: which step, and a copy of its files that the trainer's retention cannot take away.

The copy consists of hard links, which cost no space until the trainer deletes the step. A try that is killed leaves it
to the next one. On a volume without hard links the step itself is read, and an export whose step disappears meanwhile
fails.
"""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.checkpoints import saved_steps
from rljob_runtime.contract import CHECKPOINT_SCORE, ExitCode, ExportRequest, ForeignJSONError, parse_foreign_json
from rljob_runtime.export.errors import ExportError
from rljob_runtime.files import write_atomically

WORK_PREFIX = ".exporting-"
HELD = "held"
WHOLE_MARK = ".whole"
"""In the folder of a copy that is complete: when its step was saved."""
NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EXDEV, errno.EACCES})
"""What file systems without hard links answer (link(2)); EACCES where the owner of the files is another user."""
SCORE_BYTES_MAX = 4096


@dataclass(frozen=True)
class Step:
    """A complete step."""

    number: int
    folder: Path

    @property
    def saved(self) -> int:
        """Return when it was saved, in nanoseconds; another save of the same step has another time."""
        return (self.folder / saved_steps.COMPLETE_MARK).stat().st_mtime_ns


@dataclass(frozen=True)
class Held:
    """The files of a step while it is exported."""

    number: int
    saved: int
    """As of Step."""
    actor: Path


@dataclass(frozen=True)
class Score:
    """The recorded score of a step, by which the best one is chosen."""

    reward: float | None
    validation: float | None


def write_score(made: Path, reward: float | None, validation: float | None) -> None:
    """Record the score of a saved step in its folder, unless the step was deleted meanwhile."""
    if not made.is_dir():
        return
    values = {"reward": reward, "validation": validation}
    write_atomically(made / CHECKPOINT_SCORE, json.dumps(values).encode())


def find_step(request: ExportRequest) -> Step:
    """Return the step that is asked for. Raises ExportError."""
    folder = Path(request.checkpoint)
    complete = saved_steps.complete_steps(folder)
    if not complete:
        raise ExportError(ExitCode.ENVIRONMENT, "NoCheckpoint", f"{folder} has no complete checkpoint")
    number = request.step or _best(folder, complete)
    made = saved_steps.step_folder(folder, number)
    if number not in complete:
        kept = ", ".join(map(str, complete[-8:]))
        raise ExportError(
            ExitCode.BAD_CONFIG,
            "CheckpointGone",
            f"{made} is not there or not complete; the complete steps are {kept}; raise checkpoint.keep to keep more",
        )
    return Step(number, made)


def _best(folder: Path, complete: list[int]) -> int:
    """Return the step with the best score, the newest of equal ones."""
    scores = {step: _score(saved_steps.step_folder(folder, step)) for step in complete}
    for values in (
        {step: score.validation for step, score in scores.items()},
        {step: score.reward for step, score in scores.items()},
    ):
        known = {step: value for step, value in values.items() if value is not None}
        if known:
            return max(known, key=lambda step: (known[step], step))
    raise ExportError(
        ExitCode.BAD_CONFIG,
        "NoScores",
        f"no checkpoint in {folder} has a score ({CHECKPOINT_SCORE}); name a step: rljob export NAME --step N",
    )


def _score(made: Path) -> Score:
    try:
        with (made / CHECKPOINT_SCORE).open("rb") as file:
            found = parse_foreign_json(file.read(SCORE_BYTES_MAX))
    except (FileNotFoundError, ForeignJSONError):
        return Score(None, None)
    values = found if isinstance(found, dict) else {}
    return Score(_number(values.get("reward")), _number(values.get("validation")))


def _number(value: object) -> float | None:
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if usable and isinstance(value, (int, float)) else None


def take(request: ExportRequest) -> Held:
    """Hold the step that is asked for, or return what a killed try of the same export holds. Raises ExportError."""
    if request.step and (before := _held_before(request)) is not None:
        return before
    step = find_step(request)
    saved = step.saved
    # One export of a job runs at a time: what others left will not be used.
    for left in Path(request.checkpoint).glob(f"{WORK_PREFIX}{request.uid}.*.{HELD}"):
        shutil.rmtree(left, ignore_errors=True)
    return Held(step.number, saved, hold(step, held_folder(request), saved))


def held_folder(request: ExportRequest) -> Path:
    """Return the folder of the copy, the same for every try."""
    return Path(request.checkpoint) / f"{WORK_PREFIX}{request.uid}.{request.step}.{HELD}"


def _held_before(request: ExportRequest) -> Held | None:
    folder = held_folder(request)
    try:
        return Held(request.step, int((folder / WHOLE_MARK).read_text()), folder / saved_steps.MODEL_FOLDER)
    except (FileNotFoundError, ValueError):
        return None


def hold(step: Step, work: Path, saved: int) -> Path:
    """Return a folder with the actor's files of a step that nobody deletes, below `work`; raise ExportError if gone."""
    source, held = step.folder / saved_steps.MODEL_FOLDER, work / saved_steps.MODEL_FOLDER
    shutil.rmtree(work, ignore_errors=True)
    try:
        _link(source, held)
    except FileNotFoundError as error:
        raise gone(step) from error
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        shutil.rmtree(work, ignore_errors=True)
        return source
    # The trainer may have moved the step away between two files.
    sizes = {ranks for _, ranks in saved_steps.shards(held)}
    if not step.folder.is_dir() or any(missing_shards(held, ranks) for ranks in sizes):
        raise gone(step)
    write_atomically(work / WHOLE_MARK, str(saved).encode())
    return held


def missing_shards(actor: Path, ranks: int) -> list[str]:
    """Return the weights of ranks that are missing or truncated."""
    names = (f"model_world_size_{ranks}_rank_{rank}.pt" for rank in range(ranks))
    return [name for name in names if not saved_steps.is_whole(actor / name)]


def gone(step: Step) -> ExportError:
    """Return the error about a step that the trainer deleted."""
    return ExportError(
        ExitCode.BAD_CONFIG,
        "CheckpointGone",
        f"{step.folder} was deleted by checkpoint.keep before it could be exported; raise checkpoint.keep",
    )


def _link(source: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _link(Path(entry.path), target / entry.name)
            # The converter needs weights and configuration; the optimizer is the largest part of a step.
            elif entry.is_file(follow_symlinks=False) and not entry.name.startswith(("optim_", "extra_state_")):
                os.link(entry.path, target / entry.name)
