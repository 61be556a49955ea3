"""What an attempt held and what it got out of it: device-seconds, and those of them that nobody had to repeat.

An attempt holds its devices from the submission to its end. Productive are its steps up to the one from which the run
goes on: up to the last one where it succeeded, else up to its last checkpoint.
"""

from __future__ import annotations

import math
from datetime import datetime

from rljob.api.status import Attempt, AttemptOutcome, Progress, RLJobStatus, Usage
from rljob.core import clock, status


def with_usage(attempt: Attempt, current: RLJobStatus, devices: int, now: datetime) -> Attempt:
    """Give the closed attempt with its device-seconds; `current` holds its last progress and checkpoint."""
    held = devices * max((now - clock.from_text(attempt.submitted_time)).total_seconds(), 0.0)
    productive = min(held, devices * kept_steps(attempt, current) * _step_seconds(current.progress))
    return attempt.model_copy(update={"device_seconds": round(held), "productive_device_seconds": round(productive)})


def _step_seconds(progress: Progress | None) -> float:
    told = (progress.median_step_seconds or progress.step_seconds) if progress else None
    seconds = float(told) if told is not None else 0.0
    return seconds if math.isfinite(seconds) else 0.0


def kept_steps(attempt: Attempt, current: RLJobStatus) -> int:
    """Count the attempt's steps that no later attempt repeats."""
    saved = current.checkpoint.step if current.checkpoint else 0
    last = attempt.last_step if attempt.outcome is AttemptOutcome.SUCCEEDED else min(saved, attempt.last_step)
    return max(last - attempt.resumed_from_step, 0)


def added_usage(usage: Usage, attempt: Attempt) -> Usage:
    """Add a closed attempt."""
    held = usage.device_seconds + (attempt.device_seconds or 0)
    productive = usage.productive_device_seconds + (attempt.productive_device_seconds or 0)
    goodput = status.metric(productive / held) if held else None
    return Usage(device_seconds=held, productive_device_seconds=productive, goodput=goodput)
