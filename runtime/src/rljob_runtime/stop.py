"""`python -m rljob_runtime stop`: the head's preStop hook. Asks the trainer to stop and waits for it, bounded.

Whoever deletes the pod (the operator, a drain, a preemption by another controller): the run still gets its chance to
save. Worker pods wait for the head in their own hooks.
"""

from __future__ import annotations

import time

from rljob_runtime.contract import Phase, StopMode, StopRequest
from rljob_runtime.spool import Spool

POLL_SECONDS = 0.5


def stop(spool: Spool, mode: StopMode, wait_seconds: float) -> bool:
    """Ask the current attempt to stop; True when no attempt runs (any more)."""
    progress = spool.progress()
    if progress is None or progress.phase in (Phase.IDLE, Phase.ENDED):
        return True
    spool.request_stop(StopRequest(attempt=progress.attempt, mode=mode))
    deadline = time.monotonic() + wait_seconds
    while time.monotonic() < deadline:
        progress = spool.progress()
        if progress is None or progress.phase is Phase.ENDED:
            return True
        time.sleep(POLL_SECONDS)
    return False
