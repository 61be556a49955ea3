"""Usage of an attempt: the device-seconds that it held, and the productive ones, which no later attempt repeats.

An attempt holds the devices of a worker from the time that the worker gets its node, and all devices from the
submission to its end. A failed start holds the devices of the workers that had nodes when it was given up. Productive
are the steps up to the one from which the run continues: up to the last one of an attempt that succeeded, otherwise up
to its last checkpoint. The rest is listed by use, so that goodput and the shares of all uses add up to one.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from rljob.api.recovery_time import UnproductiveTime, UnproductiveUse
from rljob.api.status import Attempt, AttemptOutcome, Progress, Resolved, RLJobStatus, Usage
from rljob.core import status, times
from rljob.core.attempts.recovery_time import TRAINING
from rljob.core.observed import Manifest, Unseen
from rljob.core.scheduling.held_nodes import worker_seconds
from rljob.core.scheduling.node_faults import Held
from rljob.core.scheduling.worker_sizes import WorkerSizes


def with_usage(attempt: Attempt, current: RLJobStatus, resolved: Resolved, now: datetime) -> Attempt:
    """Return the closed attempt with its usage; `current` contains its last progress and checkpoint."""
    run = resolved.devices * max((now - times.from_text(attempt.submitted_time)).total_seconds(), 0.0)
    held = run + (attempt.device_seconds or 0)
    productive = min(held, resolved.devices * kept_steps(attempt, current) * _step_seconds(current.progress))
    rest = _unproductive(attempt, current, resolved.devices, now) if attempt.last_step_time is not None else {}
    return _with_held(attempt, resolved, held, productive, rest)


def _unproductive(attempt: Attempt, current: RLJobStatus, devices: int, now: datetime) -> dict[UnproductiveUse, float]:
    """Return what an attempt with steps held for other uses than steps that are kept; BETWEEN is what they leave."""
    submitted, last = times.from_text(attempt.submitted_time), times.from_text(str(attempt.last_step_time))
    pace, made = _step_seconds(current.progress), attempt.last_step - attempt.resumed_from_step
    # Without the time of the first step, all steps are taken to be as long as their median.
    first, steps = last, made * pace
    if current.start is not None and current.start.stage == TRAINING:
        first, steps = times.from_text(current.start.since), max(pace, _record_seconds(current.progress))
    before = (first - submitted).total_seconds() - steps
    return {
        UnproductiveUse.END: devices * max((now - last).total_seconds(), 0.0),
        UnproductiveUse.REPEATED: devices * max(made - kept_steps(attempt, current), 0) * pace,
        # The least certain one: without its status, a run that is found again was submitted when it was found.
        UnproductiveUse.START: (attempt.device_seconds or 0) + devices * max(before, 0.0),
        UnproductiveUse.BETWEEN: math.inf,
    }


def with_held_before(
    attempts: Sequence[Attempt], places: Iterable[Held] | Unseen, resolved: Resolved, sizes: WorkerSizes | None
) -> Attempt:
    """Return the running attempt with what its workers held before the submission; computed once.

    With another driver in the same cluster, that time starts at the end of the attempt before.
    """
    attempt, before = attempts[-1], [entry.end_time for entry in attempts[:-1] if entry.end_time is not None]
    if attempt.device_seconds is not None or isinstance(places, Unseen):
        return attempt
    submitted, earliest = times.from_text(attempt.submitted_time), times.from_text(before[-1]) if before else None
    moments = [(place.group, place.since) for place in places if place.works and place.since is not None]
    if not moments:
        return attempt
    begun = [(group, moment if earliest is None else max(moment, earliest)) for group, moment in moments]
    waited = [(group, max((submitted - moment).total_seconds(), 0.0)) for group, moment in begun]
    held = _device_seconds(waited, resolved, sizes)
    return attempt.model_copy(
        update={"device_seconds": round(held), "card_seconds": round(held * _cards_per_device(resolved))}
    )


def with_start_usage(
    attempt: Attempt, pods: Iterable[Manifest], resolved: Resolved, sizes: WorkerSizes | None, now: datetime
) -> Attempt:
    """Return the record of a failed start with what its remaining pods held."""
    waited = worker_seconds(pods, times.from_text(attempt.submitted_time), now)
    return _with_held(attempt, resolved, _device_seconds(waited, resolved, sizes), 0.0, {})


def _listed(seconds: Mapping[UnproductiveUse, int]) -> list[UnproductiveTime]:
    return [UnproductiveTime(use=use, device_seconds=seconds[use]) for use in UnproductiveUse if seconds.get(use)]


def _device_seconds(waited: Iterable[tuple[str, float]], resolved: Resolved, sizes: WorkerSizes | None) -> float:
    """Return the device-seconds of workers by their groups; without the spec, all workers count alike."""
    each = resolved.devices / resolved.nodes
    return sum((sizes.of(group) if sizes else each) * seconds for group, seconds in waited)


def _with_held(
    attempt: Attempt, resolved: Resolved, held: float, productive: float, rest: Mapping[UnproductiveUse, float]
) -> Attempt:
    """Return the attempt with its usage; what `rest` states is cut to what is left, and all is a start without it."""
    ratio, left, found = _cards_per_device(resolved), round(held) - round(productive), Counter[UnproductiveUse]()
    for use, stated in (rest or {UnproductiveUse.START: math.inf}).items():
        found[use] = left if stated >= left else round(stated)
        left -= found[use]
    return attempt.model_copy(
        update={
            "device_seconds": round(held),
            "productive_device_seconds": round(productive),
            "unproductive": _listed(found),
            "card_seconds": round(held * ratio),
            "productive_card_seconds": round(productive * ratio),
        }
    )


@dataclass(frozen=True)
class Account:
    """What a job has used so far: its ended attempts, and the running one as far as the status shows."""

    device_seconds: float
    """Device-seconds of the ended attempts, and of the running one before its submission."""
    productive_device_seconds: float
    """Productive ones; of the running attempt its steps up to the last checkpoint, at its median step time."""
    devices: int = 0
    """Devices that the running attempt holds."""
    since: datetime | None = None
    """When it was submitted."""
    cards_per_device: float = 1.0

    def device_seconds_at(self, now: datetime) -> float:
        """Return the device-seconds held until a time."""
        under_way = max((now - self.since).total_seconds(), 0.0) if self.since is not None else 0.0
        return self.device_seconds + self.devices * under_way


def account(current: RLJobStatus) -> Account:
    """Return the account of a job from its status."""
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
    reported = (progress.median_step_seconds or progress.step_seconds) if progress else None
    seconds = float(reported) if reported is not None else 0.0
    return seconds if math.isfinite(seconds) else 0.0


def _record_seconds(progress: Progress | None) -> float:
    seconds = float(progress.record_seconds) if progress is not None and progress.record_seconds is not None else 0.0
    return seconds if math.isfinite(seconds) else 0.0


def kept_steps(attempt: Attempt, current: RLJobStatus) -> int:
    """Return how many steps of the attempt no later attempt repeats; 0 if it never started."""
    if attempt.start_time is None:
        return 0
    # An earlier checkpoint may be in another folder, or may have been given up for an older one.
    latest = current.checkpoint
    saved = latest.step if latest is not None and latest.saved_time >= attempt.submitted_time else 0
    last = attempt.last_step if attempt.outcome is AttemptOutcome.SUCCEEDED else min(saved, attempt.last_step)
    return max(last - attempt.resumed_from_step, 0)


def added_usage(usage: Usage, attempt: Attempt) -> Usage:
    """Return the usage with a closed attempt added."""
    held = usage.device_seconds + (attempt.device_seconds or 0)
    productive = usage.productive_device_seconds + (attempt.productive_device_seconds or 0)
    rest = Counter[UnproductiveUse]()
    for part in (*usage.unproductive, *attempt.unproductive):
        rest[part.use] += part.device_seconds
    lasted = times.from_text(attempt.end_time or attempt.submitted_time) - times.from_text(attempt.submitted_time)
    return Usage(
        attempt_seconds=usage.attempt_seconds + max(round(lasted.total_seconds()), 0),
        device_seconds=held,
        productive_device_seconds=productive,
        unproductive=_listed(rest),
        card_seconds=usage.card_seconds + (attempt.card_seconds or 0),
        productive_card_seconds=usage.productive_card_seconds + (attempt.productive_card_seconds or 0),
        goodput=status.metric(productive / held) if held else None,
    )
