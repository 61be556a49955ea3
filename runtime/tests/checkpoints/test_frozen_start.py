"""A launcher that chooses its start is paused before each of its file system calls and resumes late."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from rljob_runtime.checkpoints import claims, resume
from rljob_runtime.checkpoints.claims import Owner
from rljob_runtime.checkpoints.contents import DEFAULT
from rljob_runtime.checkpoints.saved_steps import ASIDE, BEGUN_FILE, TRACKER_FILE, new_place, rename_step
from rljob_runtime.contract import JobConfig, ResumeMode
from rljob_runtime.outcomes import FencedError
from rljob_runtime.preflight import Attempt
from runtime.tests.checkpoints.test_resume import make_step
from runtime.tests.conftest import MakeJob

CALLS = ("rename", "replace", "mkdir", "rmdir", "unlink", "link", "scandir", "stat", "utime")
CALLS_AT_MOST = 400
OLD = 4
"""A step that existed before both launchers."""


@dataclasses.dataclass
class Freezer:
    """Runs a callback before one call."""

    before: int = -1
    happens: Callable[[], None] = lambda: None
    calls: int = 0

    def call(self) -> None:
        """Count calls and run the callback before the chosen one. Calls made by the callback are not counted."""
        self.calls += 1
        if self.calls - 1 == self.before:
            happens, self.before = self.happens, -1
            counted = self.calls
            happens()
            self.calls = counted


@contextlib.contextmanager
def freezing(freezer: Freezer) -> Iterator[None]:
    """Intercept the calls with which Python's pathlib changes and reads folders and opens files."""

    def watched(function: Callable[..., object]) -> Callable[..., object]:
        def call(*words: object, **named: object) -> object:
            freezer.call()
            return function(*words, **named)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in CALLS:
            patch.setattr(os, name, watched(getattr(os, name)))
        patch.setattr(io, "open", watched(open))
        yield


@dataclasses.dataclass(frozen=True)
class Launcher:
    """An attempt, as launcher and trainer use the folder."""

    folder: Path
    job: JobConfig
    attempt: int

    @property
    def owner(self) -> Owner:
        return Owner.of(self.job, self.attempt)

    def choose(self) -> None:
        attempt = Attempt(self.attempt, "sums", "pod", Path("spool"), None)
        resume.choose(self.job, attempt, {"actor": DEFAULT}, only_evaluates=False)

    def start(self) -> None:
        claims.claim(self.folder, self.owner)
        self.choose()

    def train(self, step: int) -> None:
        made = make_step(new_place(self.folder, self.job.uid, self.attempt), step)
        (made / "data.pt").write_bytes((made / "data.pt").read_bytes() + self.job.uid.encode())
        rename_step(self.folder, step, made, lambda: claims.check(self.folder, self.owner))
        claims.publish(self.folder, self.owner, step)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the files that determine where an attempt starts."""
    files = [*folder.glob("global_step_*/**/*"), folder / TRACKER_FILE, folder / BEGUN_FILE]
    return {str(file.relative_to(folder)): file.read_bytes() for file in files if file.is_file()}


def old_step_is_somewhere(folder: Path) -> bool:
    places = (folder, *folder.glob("set-aside-by-*"), *folder.glob(f"{ASIDE}*"))
    return any(len(list(place.glob(f"global_step_{OLD}*/actor/model*"))) == 2 for place in places)


def never(folder: Path) -> None:
    make_step(folder, OLD)
    make_step(folder, OLD + 2, complete=False)
    (folder / TRACKER_FILE).write_text(str(OLD))


def no_tracker(folder: Path) -> None:
    make_step(folder, OLD)


def lost_part(folder: Path) -> None:
    make_step(folder, OLD)
    (make_step(folder, OLD + 2) / "actor" / "model_world_size_2_rank_1.pt").write_bytes(b"")
    (folder / TRACKER_FILE).write_text(str(OLD + 2))


def come_back_late(first: Launcher, second: Launcher, before: int) -> tuple[dict[str, bytes] | None, bool]:
    """Pause the first launcher before one of its calls until the second has saved a step.

    Return what the second left, None if the first made no such call, and whether the first got an error.
    """
    left: list[dict[str, bytes]] = []

    def follow() -> None:
        os.utime(second.folder / claims.OWNER_FILE, (0, 0))  # the claim has not been renewed for long
        second.start()
        second.train(OLD + 2)
        left.append(contents(second.folder))

    claims.claim(first.folder, first.owner)
    with freezing(Freezer(before, follow)):
        try:
            first.choose()
        except FencedError:
            return left[0], True
    return (left[0] if left else None), False


@pytest.mark.parametrize("next_is", ["the same job's next attempt", "another job"])
@pytest.mark.parametrize(
    ("mode", "fill"),
    [(ResumeMode.NEVER, never), (ResumeMode.AUTO, no_tracker), (ResumeMode.AUTO, lost_part)],
    ids=["sets steps aside", "names a step", "passes a step over"],
)
def test_a_process_paused_while_it_chooses_its_start_changes_nothing_of_the_next_owner(
    make_job: MakeJob, tmp_path: Path, mode: ResumeMode, fill: Callable[[Path], None], next_is: str
) -> None:
    told_once = False
    for before in range(CALLS_AT_MOST):
        folder = tmp_path / str(before)
        folder.mkdir()
        fill(folder)
        job = make_job(checkpoint_path=str(folder), resume=mode)
        follower = job if next_is.startswith("the same") else dataclasses.replace(job, uid="uid-2")
        left, told = come_back_late(Launcher(folder, job, 1), Launcher(folder, follower, 2), before)
        told_once |= told
        if left is None:
            assert told_once
            return
        assert contents(folder) == left, f"frozen before call {before}"
        assert old_step_is_somewhere(folder)
        Launcher(folder, follower, 3).start()
        assert contents(folder) == left, "the next attempt continues from the saved step"
    pytest.fail("the choice makes more calls than this test freezes")
