"""Bring the progress that a pod reports into the bounds of the status before it is used.

The exporter runs beside the user's code: a wrong clock, a NaN or a step of 10^18 may cost a metric, never a reconcile.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import datetime

from rljob.core.status import bounded
from rljob_runtime.contract import NOTE_LIMIT, NOTES_MAX, PassedStage, Phase, Progress, StartProgress, StartStage

STEP_MAX = 2_147_483_647
BYTES_MAX = 2**63 - 1
VERSION = re.compile(r"[0-9A-Za-z][ -~]{0,63}")
STEP_SECONDS_MAX = 1e6
"""Eleven days: no step takes longer."""


def plausible(answer: Progress, now: datetime) -> Progress:
    """Return the answer with every number within bounds; impossible values are dropped."""
    step = min(max(answer.step, 0), STEP_MAX)
    # 0: a command whose number of steps is not stated.
    total = min(max(answer.total_steps, step), STEP_MAX) if answer.total_steps > 0 else 0
    saved, interval = answer.checkpoint_step, answer.save_every_steps
    resumed, size = answer.resumed_from_step, answer.checkpoint_bytes
    return replace(
        answer,
        step=step,
        total_steps=total,
        observed_time=_past(answer.observed_time, now),
        step_time=_past(answer.step_time, now) if answer.step_time else None,
        start_time=_past(answer.start_time, now),
        checkpoint_step=min(saved, STEP_MAX) if saved is not None and saved > 0 else None,
        step_seconds=_step_seconds(answer.step_seconds),
        median_step_seconds=_step_seconds(answer.median_step_seconds),
        record_seconds=_step_seconds(answer.record_seconds),
        median_rollout_seconds=_step_seconds(answer.median_rollout_seconds),
        resumed_from_step=None if resumed is None else min(max(resumed, 0), STEP_MAX),
        checkpoint_time=_past(answer.checkpoint_time, now) if answer.checkpoint_time else None,
        checkpoint_seconds=_positive(answer.checkpoint_seconds),
        start=_start(answer.start, now) if answer.phase is Phase.STARTING else None,
        notes=tuple(dict.fromkeys(bounded(note, NOTE_LIMIT) for note in answer.notes[:NOTES_MAX] if note)),
        verl_version=answer.verl_version if VERSION.fullmatch(answer.verl_version) else "",
        save_every_steps=interval if interval is not None and 0 < interval <= STEP_MAX else None,
        checkpoint_bytes=size if size is not None and 0 <= size <= BYTES_MAX else None,
    )


def _step_seconds(reported: float | None) -> float | None:
    return reported if reported is not None and 0 < reported <= STEP_SECONDS_MAX else None


def _start(reported: StartProgress | None, now: datetime) -> StartProgress | None:
    """A stage that this version does not know, or that began at no possible time, says nothing."""
    if reported is None or reported.stage not in list(StartStage) or not (begun := _past(reported.begun, now)):
        return None
    passed = tuple(
        PassedStage(entry.stage, then)
        for entry in reported.passed[: len(StartStage)]
        if entry.stage in list(StartStage) and (then := _past(entry.begun, now))
    )
    if reported.done is None or reported.total is None or not 0 <= reported.done <= reported.total <= STEP_MAX:
        return StartProgress(reported.stage, begun, passed=passed)
    return replace(reported, begun=begun, passed=passed)


def _positive(seconds: float | None) -> float | None:
    return seconds if seconds is not None and 0 <= seconds <= STEP_SECONDS_MAX else None


def _past(seconds: float, now: datetime) -> float:
    """A clock that runs ahead must not delay a deadline."""
    return min(seconds, now.timestamp()) if math.isfinite(seconds) and seconds > 0 else 0.0
