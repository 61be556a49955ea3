"""Ray jobs that a command submitted to its own cluster, such as `ray job submit` in a script.

They do not end with the client that submitted them, and would keep the NPUs from the next attempt. They are stopped
when the command has ended or was stopped; an attempt that is abandoned leaves them to the end of its cluster.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any

from rljob_runtime.files import run_with_timeout

SECONDS = 60.0
"""For all of it: Ray's client has no time limit."""
STOP_SECONDS = 30.0
"""For jobs to end: Ray sends SIGKILL 3 s after SIGTERM (dashboard/modules/job/job_supervisor.py, 2.60)."""
POLL_SECONDS = 0.5
ALIVE = ("PENDING", "RUNNING")
SHOWN = 3


def stop_left(own: str, since: float, note: Callable[[str], None]) -> None:
    """Stop the submissions since a time that still run, but for our own, and note it. Never raises."""

    def stop() -> None:
        try:
            _stop(own, since, note)
        except Exception as error:  # noqa: BLE001 - how the command ended matters more
            note(f"Ray jobs that the command may have left cannot be looked for: {type(error).__name__}: {error}")

    run_with_timeout(SECONDS, stop, "Ray jobs that the command may have left are not looked for")


def _stop(own: str, since: float, note: Callable[[str], None]) -> None:
    from ray.job_submission import JobSubmissionClient

    client = JobSubmissionClient()
    if not (left := _running(client, own, since)):
        return
    names = ", ".join(left[:SHOWN]) + (f" and {len(left) - SHOWN} more" if len(left) > SHOWN else "")
    note(
        f"Ray jobs that began beside the command still ran, and are stopped: {names}; run their program as the command"
    )
    for name in left:
        with contextlib.suppress(RuntimeError):  # it has ended meanwhile
            client.stop_job(name)
    deadline = time.monotonic() + STOP_SECONDS
    while _running(client, own, since):
        if time.monotonic() >= deadline:
            note(f"Ray jobs {names} do not end, and may keep NPUs")
            return
        time.sleep(POLL_SECONDS)


def _running(client: Any, own: str, since: float) -> list[str]:  # noqa: ANN401 - Ray's client
    return [
        job.submission_id
        for job in client.list_jobs()
        if job.submission_id not in (None, own) and job.status in ALIVE and (job.start_time or 0) >= since * 1000
    ]
