"""Which steps a checkpoint folder holds, which one verl's tracker names, and which go. Who may write there: claims.py.

A tracker that verl wrote by itself, without a rename, may be empty after a crash, and then verl dies on resume; the
launcher repairs it first. A step goes by a rename: from one moment to the next it is no checkpoint to anybody, and its
deletion may take long, be cut off, or fail.
"""

from __future__ import annotations

import contextlib
import re
import shutil
import uuid
import zipfile
from collections.abc import Callable
from pathlib import Path

from rljob_runtime.files import write_atomically

TRACKER_FILE = "latest_checkpointed_iteration.txt"
"""verl/utils/checkpoint/checkpoint_manager.py, find_latest_ckpt_path (0.9.1)."""
COMPLETE_MARK = "data.pt"
"""Written after the model and before the tracker, by torch.save: trainer_base.py, _save_checkpoint (0.9.1)."""
MODEL_FOLDER = "actor"
"""Beside the mark. verl's own limit removes it from an old step and leaves the mark: checkpoint_manager.py (0.9.1)."""
STEP_FOLDER = re.compile(r"^global_step_(\d+)$")
RETIRED = ".retired-"
"""Beginning of the name of a place in which a step's folder waits for its deletion."""


def complete_steps(folder: Path) -> list[int]:
    """Give the steps whose checkpoints are complete, ascending."""
    return [step for step in _steps(folder) if is_complete(step_folder(folder, step))]


def superfluous_steps(folder: Path, keep: int, last: int) -> list[int]:
    """Give the steps up to `last` that nobody needs: not the newest `keep` complete ones, and not the tracker's."""
    steps = [step for step in _steps(folder) if step <= last]
    complete = [step for step in steps if is_complete(step_folder(folder, step))]
    needed = {*complete[-keep:], tracked_step(folder)}
    return [step for step in steps if step not in needed]


def retire(folder: Path, step: int, check_owner: Callable[[], None]) -> None:
    """Take a step away, if it is there: whoever still writes into its files writes for nobody.

    However long the process is frozen between two of these lines, one that lost the folder takes nothing away: a new
    owner moves the place after it has claimed (`displace_retired`), so either the check or the rename fails.
    """
    made = step_folder(folder, step)
    if not made.exists():
        return
    place = folder / f"{RETIRED}{step}.{uuid.uuid4().hex}"
    place.mkdir()
    check_owner()
    try:
        made.rename(place / made.name)
    except FileNotFoundError:
        check_owner()


def displace_retired(folder: Path) -> None:
    """Let nobody who owned the folder before take another step away."""
    for entry in folder.glob(f"{RETIRED}*"):
        with contextlib.suppress(FileNotFoundError):
            entry.rename(folder / f"{RETIRED}{uuid.uuid4().hex}")


def delete_retired(folder: Path) -> None:
    """Delete what was taken away, by earlier attempts too; raises OSError after it has tried all of it."""
    failed: OSError | None = None
    for entry in folder.glob(f"{RETIRED}*"):
        try:
            shutil.rmtree(entry)
        except FileNotFoundError:
            continue  # somebody else is at it
        except OSError as error:
            failed = error
    if failed is not None:
        raise failed


def _steps(folder: Path) -> list[int]:
    """Give every step that has a folder, ascending."""
    if not folder.is_dir():
        return []
    return sorted(int(match[1]) for entry in folder.iterdir() if (match := STEP_FOLDER.match(entry.name)))


def is_complete(made: Path) -> bool:
    """Tell whether a step's folder can be resumed from.

    What torch.save writes is a zip, whose directory comes last: a mark that was cut off in the writing has none.
    """
    return zipfile.is_zipfile(made / COMPLETE_MARK) and (made / MODEL_FOLDER).is_dir()


def saved_time(made: Path) -> float | None:
    """Give the time of a step's mark, by the volume's clock."""
    try:
        return (made / COMPLETE_MARK).stat().st_mtime
    except OSError:
        return None


def step_folder(folder: Path, step: int) -> Path:
    """Name the folder of one step."""
    return folder / f"global_step_{step}"


def tracked_step(folder: Path) -> int | None:
    """Give the step that verl's tracker names; None if there is none or it is damaged."""
    try:
        return int((folder / TRACKER_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None


def repair_tracker(folder: Path) -> int | None:
    """Let the tracker name the step to resume from, and give it.

    A tracker that names a complete checkpoint is kept, even an older one: a user may have set it by hand.
    """
    steps = complete_steps(folder)
    tracked = tracked_step(folder)
    if tracked in steps:
        return tracked
    if not steps:
        (folder / TRACKER_FILE).unlink(missing_ok=True)
        return None
    write_atomically(folder / TRACKER_FILE, str(steps[-1]).encode(), durable=True)
    return steps[-1]
