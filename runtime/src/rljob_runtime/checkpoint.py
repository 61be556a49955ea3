"""Which steps a checkpoint folder holds, and which one verl's tracker names. Who may write there: claims.py.

A tracker that verl wrote by itself, without a rename, may be empty after a crash, and then verl dies on resume; the
launcher repairs it first.
"""

from __future__ import annotations

import re
import zipfile
from pathlib import Path

from rljob_runtime.files import write_atomically

TRACKER_FILE = "latest_checkpointed_iteration.txt"
"""verl/utils/checkpoint/checkpoint_manager.py, find_latest_ckpt_path (0.9.1)."""
COMPLETE_MARK = "data.pt"
"""Written after the model and before the tracker, by torch.save: trainer_base.py, _save_checkpoint (0.9.1)."""
MODEL_FOLDER = "actor"
"""Beside the mark. `checkpoint.keep` removes it from an old step and leaves the mark: checkpoint_manager.py (0.9.1)."""
STEP_FOLDER = re.compile(r"^global_step_(\d+)$")


def complete_steps(folder: Path) -> list[int]:
    """Give the steps whose checkpoints are complete, ascending."""
    if not folder.is_dir():
        return []
    matches = ((STEP_FOLDER.match(entry.name), entry) for entry in folder.iterdir())
    return sorted(int(match[1]) for match, entry in matches if match and is_complete(entry))


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
