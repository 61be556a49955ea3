"""Who may write into a checkpoint folder, and which step it holds.

An attempt that was cut off by a partition may come back and go on training. So the launcher claims the folder for its
attempt, and every save reads the claim again: whoever finds a newer owner stops without writing. verl's tracker file is
written without a rename, so a crash can leave it empty, and then verl dies on resume; the launcher repairs it first.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

from rljob_runtime.files import write_atomically

OWNER_FILE = ".owner"
TRACKER_FILE = "latest_checkpointed_iteration.txt"
"""verl/utils/checkpoint/checkpoint_manager.py, find_latest_ckpt_path (0.9.1)."""
COMPLETE_MARK = "data.pt"
"""Written after the model and before the tracker: trainer_base.py, _save_checkpoint (0.9.1)."""
STEP_FOLDER = re.compile(r"^global_step_(\d+)$")


class FencedError(RuntimeError):
    """Another attempt owns the checkpoint folder."""


@dataclass(frozen=True)
class Owner:
    """An attempt of a job."""

    uid: str
    attempt: int


def read_owner(folder: Path) -> Owner | None:
    """Read the claim; None if nobody claimed the folder or the claim is unreadable."""
    try:
        raw = json.loads((folder / OWNER_FILE).read_bytes())
        return Owner(uid=str(raw["uid"]), attempt=int(raw["attempt"]))
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def claim(folder: Path, owner: Owner) -> None:
    """Take the folder for `owner`.

    A newer attempt of the same job refuses. A claim of another job is taken over: a re-created job resumes from its
    predecessor's path, and the predecessor, if it still lives, fails its next check.
    """
    folder.mkdir(parents=True, exist_ok=True)
    found = read_owner(folder)
    if found is not None and found.uid == owner.uid and found.attempt > owner.attempt:
        raise FencedError(f"{folder}: attempt {found.attempt} owns it, this is attempt {owner.attempt}")
    write_atomically(folder / OWNER_FILE, json.dumps(asdict(owner), sort_keys=True).encode(), durable=True)
    check(folder, owner)


def check(folder: Path, owner: Owner) -> None:
    """Raise FencedError unless `owner` still holds the folder."""
    found = read_owner(folder)
    if found != owner:
        raise FencedError(f"{folder}: owned by {found}, not by {owner}; nothing more is written from here")


def complete_steps(folder: Path) -> list[int]:
    """Give the steps whose checkpoints are complete, ascending."""
    if not folder.is_dir():
        return []
    matches = ((STEP_FOLDER.match(entry.name), entry) for entry in folder.iterdir())
    return sorted(int(match[1]) for match, entry in matches if match and (entry / COMPLETE_MARK).is_file())


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
