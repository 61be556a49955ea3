"""A run of one attempt without verl, for test_claims.py: it claims, renews, saves step 1, and saves step 2 slowly.

`python -m runtime.tests.fenced_save_process FOLDER SPOOL PLACE GO` prints PLACE when it gets there and waits for the
file GO. The parts are the product's: the launcher's handling of its claim, and the trainer's steps around verl's.
"""

from __future__ import annotations

import dataclasses
import sys
import time
import types
from pathlib import Path

from rljob_runtime import launch, preflight
from rljob_runtime.checkpoints import claims
from rljob_runtime.checkpoints.saved_steps import step_folder
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Platform
from rljob_runtime.outcomes import FencedError
from rljob_runtime.spool.mirror import Mirror
from rljob_runtime.spool.spool import Spool
from rljob_runtime.training_attempt import TrainingAttempt
from rljob_runtime.verl_plugin.launcher import VerlTrainer
from rljob_runtime.verl_plugin.trainer import fenced_save

JOB = JobConfig(CONTRACT_VERSION, "team-a", "sums", "uid-1", "sums-uid01-1", 1, Platform.CPU, 1, 2, 2, 40, {})
LEASE = claims.Lease(renew_seconds=0.2, stale_seconds=1.0, wait_seconds=3.0)
WAIT_SECONDS = 60.0
WHOLE_MARK = b"PK\x05\x06" + bytes(18)
"""The smallest zip file, which consists only of its end record. verl's mark `data.pt` is a zip file."""


class Pause:
    """Pauses once, at one place, until a file exists."""

    def __init__(self, place: str, go: Path) -> None:
        self.place, self.go = place, go
        self.armed = False

    def at(self, place: str) -> None:
        """Wait if this is the place."""
        if self.armed and place == self.place:
            self.armed = False
            print(place, flush=True)
            deadline = time.monotonic() + WAIT_SECONDS
            while not self.go.exists() and time.monotonic() < deadline:
                time.sleep(0.001)


def save(run: TrainingAttempt, step: int, pause: Pause) -> None:
    """Write in verl's order: the model, the mark through the dataloader's state, the tracker through the callback."""
    run.clear(step)
    place = run.new_place()
    if place is None:
        raise AssertionError("a job with a checkpoint.path has a place to save in")
    made = step_folder(place, step)
    (made / "actor").mkdir(parents=True)
    pause.at("saving")
    state = fenced_save.FencedState(types.SimpleNamespace(state_dict=lambda: WHOLE_MARK), run, made).state_dict()
    (made / "data.pt").write_bytes(state)
    pause.at("before-publishing")
    run.publish(step, made)


def main() -> None:
    """Run the attempt."""
    folder, spool, place, go = Path(sys.argv[1]), Spool(Path(sys.argv[2])), sys.argv[3], Path(sys.argv[4])
    pause = Pause(place, go)
    job = dataclasses.replace(JOB, checkpoint_path=str(folder))
    attempt = preflight.Attempt(1, "sums-uid01-1-1", "pod", spool.root)
    launched = launch.Launch(attempt, job, spool, launch.Patience(claim=LEASE), Mirror(job, 1), VerlTrainer())
    launch.begin(launched)
    claims.claim(folder, launched.owner, LEASE)
    keeper = launched.keeper
    if keeper is None:
        raise AssertionError("a job with a checkpoint.path has a claim to keep")
    keeper.start()
    run = TrainingAttempt(job, 1, spool)
    save(run, 1, pause)
    pause.armed = True
    checked = claims.check

    def check(folder: Path, owner: claims.Owner) -> None:
        checked(folder, owner)
        if list(folder.glob(".latest*")):  # within `publish`
            pause.at("while-publishing")

    claims.check = check
    try:
        pause.at("training")
        save(run, 2, pause)
    except FencedError as error:
        launch.leave_fenced(launched, error)
    keeper.stop(clean=True)
    print("saved", flush=True)


if __name__ == "__main__":
    main()
