"""Ray jobs that a command submitted to its own cluster, such as `ray job submit` in a script.

They do not end with the client that submitted them, and would keep the NPUs from the next attempt. They are stopped
when the command has ended, whatever its end was.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

STOP_SECONDS = 30.0
"""For jobs to end: Ray sends SIGKILL 3 s after SIGTERM (dashboard/modules/job/job_supervisor.py, 2.60)."""
POLL_SECONDS = 0.5
ALIVE = ("PENDING", "RUNNING")
SHOWN = 3


def stop_left(own: str, since: float, note: Callable[[str], None]) -> None:
    """Stop the submissions since a time that still run, but for our own, and note it. Never raises."""
    try:
        from ray.job_submission import JobSubmissionClient

        client = JobSubmissionClient()
        if not (left := _running(client, own, since)):
            return
        for name in left:
            client.stop_job(name)
        names = ", ".join(left[:SHOWN]) + (f" and {len(left) - SHOWN} more" if len(left) > SHOWN else "")
        note(f"the command left Ray jobs running, which are stopped: {names}. Run the program itself as the command")
        deadline = time.monotonic() + STOP_SECONDS
        while _running(client, own, since):
            if time.monotonic() >= deadline:
                note(f"Ray jobs {names} do not end, and may keep NPUs")
                return
            time.sleep(POLL_SECONDS)
    except Exception as error:  # noqa: BLE001 - how the command ended matters more
        note(f"Ray jobs that the command may have left cannot be looked for: {type(error).__name__}: {error}")


def _running(client: Any, own: str, since: float) -> list[str]:  # noqa: ANN401 - Ray's client
    return [
        job.submission_id
        for job in client.list_jobs()
        if job.submission_id not in (None, own) and job.status in ALIVE and (job.start_time or 0) >= since * 1000
    ]
