"""A launcher without verl whose run never makes a step, for test_stacks.py: it is asked to stop as stalled.

`python -m runtime.tests.stalling_process SPOOL VOLUME`
"""

from __future__ import annotations

import dataclasses
import sys
import threading
from pathlib import Path

from rljob_runtime import launch, preflight
from rljob_runtime.contract import StopMode, StopRequest
from rljob_runtime.mirror import Mirror
from rljob_runtime.spool import Spool
from rljob_runtime.stacks.register import register
from runtime.tests.saving_process import JOB


def train_for_ever() -> None:
    """Hang."""
    threading.Event().wait()


if __name__ == "__main__":
    spool, job = Spool(Path(sys.argv[1])), dataclasses.replace(JOB, log_path=sys.argv[2])
    attempt = preflight.Attempt(1, "sums-uid01-1-1", "pod", spool.root)
    launched = launch.Launch(attempt, job, spool, launch.Patience(), Mirror(job, 1))
    launch.begin(spool, attempt, job)
    register()
    launch.install_stop_handlers(launched)
    spool.request_stop(StopRequest(attempt=1, mode=StopMode.STALLED))
    train_for_ever()
