"""What a Ray job's end means when the launcher's own word did not arrive through the exporter.

The launcher prints its Outcome as the last line of the driver's log; without it, Ray's state and exit code decide.
"""

from __future__ import annotations

from rljob.core.observed import RayJob, RayJobState
from rljob.core.reasons import Reason
from rljob_runtime.contract import ContractError, ExitCode, Outcome

TAIL_LIMIT = 1500
"""Characters of the log that go into a condition's message."""


def outcome_of(ray_job: RayJob, last_step: int) -> Outcome:
    """Give the outcome of a Ray job that ended."""
    if (told := _told(ray_job.log_tail)) is not None:
        return told
    if ray_job.state is RayJobState.SUCCEEDED:
        return Outcome(exit_code=ExitCode.DONE, reason=Reason.SUCCEEDED, message="", last_step=last_step)
    reason = Reason.DRIVER_STOPPED if ray_job.state is RayJobState.STOPPED else Reason.DRIVER_FAILED
    code = ray_job.driver_exit_code if ray_job.driver_exit_code is not None else int(ExitCode.FAILED)
    tail = ray_job.log_tail.strip() or ray_job.message.strip()
    message = f"exit code {code}: {tail[-TAIL_LIMIT:]}" if tail else f"exit code {code}"
    return Outcome(exit_code=code, reason=reason, message=message, last_step=last_step)


def _told(log_tail: str) -> Outcome | None:
    lines = log_tail.strip().splitlines()
    for line in reversed(lines[-20:]):
        if line.startswith("{"):
            try:
                return Outcome.from_json(line)
            except ContractError:
                continue
    return None
