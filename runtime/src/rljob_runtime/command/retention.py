"""Delete the steps of a command beyond the number that the job keeps.

A step is deleted only when as many newer steps are complete. A launcher that has lost the folder in the meantime can
therefore never delete the step from which another attempt resumes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.checkpoints import saved_steps
from rljob_runtime.command import attempt_folders
from rljob_runtime.command.attempt_folders import Saved
from rljob_runtime.contract import CheckpointLayout, CommandCheckpoint


@dataclass(frozen=True)
class Retention:
    """What an attempt keeps, and of which folder."""

    keep: int
    """Number of newest complete steps."""
    own: Path
    """The folder to which this attempt saves; it stays even if it is empty."""
    check_owner: Callable[[], None]
    """Raises FencedError if the job's checkpoint folder belongs to another attempt."""

    def apply(self, folder: Path, layout: CommandCheckpoint) -> None:
        """Delete what is older, in the folders of all attempts. Raises OSError and FencedError."""
        oldest = _oldest_kept(folder, layout, self.keep)
        if oldest is None:
            return
        # Where attempts have folders of their own, what stands beside them was saved by somebody else.
        roots = [folder] if self.own == folder else attempt_folders.attempt_folders(folder)
        for root in roots:
            steps = attempt_folders.steps_in(root, layout)
            older = [saved for saved in steps if saved.step < oldest and not _is_linked(saved, folder)]
            for saved in older:
                self._delete(saved)
            if older and root != self.own:
                with contextlib.suppress(OSError):  # it has more than steps in it
                    root.rmdir()

    def _delete(self, saved: Saved) -> None:
        # First what makes it complete, so that no other process takes it for a step to resume from.
        if not saved.complete.is_relative_to(saved.entry):
            self.check_owner()
            saved.complete.unlink(missing_ok=True)
        saved_steps.move_away(saved.entry, saved_steps.RETIRED, self.check_owner)
        saved_steps.delete_retired(saved.entry.parent)


def _is_linked(saved: Saved, folder: Path) -> bool:
    """Report whether a symbolic link leads to a step, which may then be anybody's."""
    below = (saved.entry, *saved.entry.parents, *saved.complete.parents)
    return any(place.is_symlink() for place in below if place != folder and place.is_relative_to(folder))


def _oldest_kept(folder: Path, layout: CommandCheckpoint, keep: int) -> int | None:
    """Return the oldest of the newest `keep` complete steps; None if there are fewer.

    Attempts that repeat a step save it twice, which counts once. Where nothing marks a folder as complete, the newest
    one may still be written and does not count.
    """
    unmarked = layout.layout is CheckpointLayout.PATTERN and layout.complete is None
    found: list[int] = []
    for saved in attempt_folders.complete_steps(folder, layout):
        if not found and unmarked and saved.path.is_dir():
            keep += 1
        if saved.step not in found:
            found.append(saved.step)
        if len(found) == keep:
            return found[-1]
    return None
