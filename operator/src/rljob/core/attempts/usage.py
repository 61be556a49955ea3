"""What an attempt held and what it got out of it: device-seconds, and those of them that nobody had to repeat.

An attempt holds the devices of each worker from when that one got its node, which is told while it runs, and all of
them from the submission to its end; a start that failed, those of the workers that had nodes when it was given up.
Productive are its steps up to the one from which the run goes on: up to the last one where it succeeded, else up to its
last checkpoint.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from rljob.api.status import Attempt, AttemptOutcome, Progress, Resolved, RLJobStatus, Usage
from rljob.core import status, times
from rljob.core.observed import Manifest, Unseen
from rljob.core.scheduling.held_nodes import worker_seconds
from rljob.core.scheduling.node_faults import Held


def with_usage(attempt: Attempt, current: RLJobStatus, resolved: Resolved, now: datetime) -> Attempt:
    """Give the closed attempt with what it held; `current` holds its last progress and checkpoint."""
    run = resolved.devices * max((now - times.from_text(attempt.submitted_time)).total_seconds(), 0.0)
    held = run + (attempt.device_seconds or 0)
    productive = min(held, resolved.devices * kept_steps(attempt, current) * _step_seconds(current.progress))
    return _with_held(attempt, resolved, held, productive)


def with_held_before(attempts: Sequence[Attempt], places: Iterable[Held] | Unseen, resolved: Resolved) -> Attempt:
    """Give the last attempt, which runs, with what its workers held before the submission; told once.

    Where another driver follows in the same cluster, that begins with the end of the one before.
    """
    attempt, before = attempts[-1], [entry.end_time for entry in attempts[:-1] if entry.end_time is not None]
    if attempt.device_seconds is not None or isinstance(places, Unseen):
        return attempt
    submitted, earliest = times.from_text(attempt.submitted_time), times.from_text(before[-1]) if before else None
    moments = [place.since for place in places if place.works and place.since is not None]
    if not moments:
        return attempt
    begun = [moment if earliest is None else max(moment, earliest) for moment in moments]
    seconds = sum(max((submitted - moment).total_seconds(), 0.0) for moment in begun)
    held = resolved.devices / resolved.nodes * seconds
    return attempt.model_copy(
        update={"device_seconds": round(held), "card_seconds": round(held * _cards_per_device(resolved))}
    )


def with_start_usage(attempt: Attempt, pods: Iterable[Manifest], resolved: Resolved, now: datetime) -> Attempt:
    """Give the record of a start that failed with what the pods held that are still there."""
    seconds = worker_seconds(pods, times.from_text(attempt.submitted_time), now)
    return _with_held(attempt, resolved, resolved.devices / resolved.nodes * seconds, 0.0)


def _with_held(attempt: Attempt, resolved: Resolved, held: float, productive: float) -> Attempt:
    ratio = _cards_per_device(resolved)
    return attempt.model_copy(
        update={
            "device_seconds": round(held),
            "productive_device_seconds": round(productive),
            "card_seconds": round(held * ratio),
            "productive_card_seconds": round(productive * ratio),
        }
    )


@dataclass(frozen=True)
class Account:
    """What a job used so far: the attempts that ended, and the one under way as far as its status tells."""

    device_seconds: float
    """Of the attempts that ended, and of the one under way what it held before its submission."""
    productive_device_seconds: float
    """Of these and of the one under way: for that one, its steps up to the last checkpoint, by its median step."""
    devices: int = 0
    """What the attempt under way holds."""
    since: datetime | None = None
    """When it was submitted."""
    cards_per_device: float = 1.0

    def device_seconds_at(self, now: datetime) -> float:
        """Give the device-seconds held up to a moment."""
        under_way = max((now - self.since).total_seconds(), 0.0) if self.since is not None else 0.0
        return self.device_seconds + self.devices * under_way


def account(current: RLJobStatus) -> Account:
    """Give a job's account as its status has it."""
    used, resolved = current.usage, current.resolved
    if resolved is None:
        return Account(used.device_seconds, used.productive_device_seconds)
    ratio = _cards_per_device(resolved)
    last = current.attempts[-1] if current.attempts else None
    if last is None or last.end_time is not None:
        return Account(used.device_seconds, used.productive_device_seconds, cards_per_device=ratio)
    step = current.progress.step if current.progress else 0
    kept = kept_steps(last.model_copy(update={"last_step": step}), current)
    productive = used.productive_device_seconds + resolved.devices * kept * _step_seconds(current.progress)
    since = times.from_text(last.submitted_time)
    held = used.device_seconds + (last.device_seconds or 0)
    return Account(held, productive, resolved.devices, since, ratio)


def _cards_per_device(resolved: Resolved) -> float:
    cards = float(resolved.cards)
    return cards / resolved.devices if math.isfinite(cards) else 1.0


def _step_seconds(progress: Progress | None) -> float:
    told = (progress.median_step_seconds or progress.step_seconds) if progress else None
    seconds = float(told) if told is not None else 0.0
    return seconds if math.isfinite(seconds) else 0.0


def kept_steps(attempt: Attempt, current: RLJobStatus) -> int:
    """Count the attempt's steps that no later attempt repeats; one that never told of a step has none."""
    if attempt.start_time is None:
        return 0
    # One that was there before may lie on another path, or have been given up for an older one.
    told = current.checkpoint
    saved = told.step if told is not None and told.saved_time >= attempt.submitted_time else 0
    last = attempt.last_step if attempt.outcome is AttemptOutcome.SUCCEEDED else min(saved, attempt.last_step)
    return max(last - attempt.resumed_from_step, 0)


def added_usage(usage: Usage, attempt: Attempt) -> Usage:
    """Add a closed attempt."""
    held = usage.device_seconds + (attempt.device_seconds or 0)
    productive = usage.productive_device_seconds + (attempt.productive_device_seconds or 0)
    lasted = times.from_text(attempt.end_time or attempt.submitted_time) - times.from_text(attempt.submitted_time)
    return Usage(
        attempt_seconds=usage.attempt_seconds + max(round(lasted.total_seconds()), 0),
        device_seconds=held,
        productive_device_seconds=productive,
        card_seconds=usage.card_seconds + (attempt.card_seconds or 0),
        productive_card_seconds=usage.productive_card_seconds + (attempt.productive_card_seconds or 0),
        goodput=status.metric(productive / held) if held else None,
    )
