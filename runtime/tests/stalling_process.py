"""A launcher without verl whose run never completes a step, for test_stacks.py and test_stop.py.

`python -m runtime.tests.stalling_process SPOOL VOLUME MODE`; the volume contains logs and checkpoints.
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path

from rljob_runtime import launch, preflight
from rljob_runtime.checkpoints import claims
from rljob_runtime.contract import StopMode, StopRequest
from rljob_runtime.spool.mirror import Mirror
from rljob_runtime.spool.spool import Spool
from rljob_runtime.stacks.register import register
from rljob_runtime.verl_plugin.launcher import VerlTrainer
from runtime.tests.fenced_save_process import JOB


def train_for_ever() -> None:
    """Hang."""
    threading.Event().wait()


if __name__ == "__main__":
    spool, volume, mode = Spool(Path(sys.argv[1])), Path(sys.argv[2]), StopMode(sys.argv[3])
    job = dataclasses.replace(JOB, log_path=str(volume), checkpoint_path=str(volume / "checkpoints"))
    attempt = preflight.Attempt(1, "sums-uid01-1-1", "pod", spool.root)
    launched = launch.Launch(attempt, job, spool, launch.Patience(), Mirror(job, 1), VerlTrainer())
    launch.begin(launched)
    register()
    launch.install_stop_handlers(launched)
    if launched.keeper is None:
        raise AssertionError("a job with a checkpoint.path has a claim to keep")
    claims.claim(volume / "checkpoints", launched.owner, launched.patience.claim)
    launched.keeper.start()
    spool.request_stop(StopRequest(attempt=1, mode=mode))
    train_for_ever()
