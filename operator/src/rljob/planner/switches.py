"""What the switches of a job are expected to save of a step, with where each number comes from.

A published share was measured by others, on their stack; a modelled one is computed for this job. Savings of several
switches do not add up.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rljob.planner.layouts import Candidate, Job, Seconds, rollout_setup
from rljob.planner.rollout.policies import Admission, Placement, Policy
from rljob.planner.rollout.setup import Setup
from rljob.planner.rollout.simulation import simulate
from rljob.planner.rollout.step_time import Origin
from rljob.planner.rollout.traces import Trace

RECIPES = "cann-recipes-train"
SKIP, BALANCE, LATE = "optimizations.skipOldLogProb", "optimizations.batchBalance", "optimizations.loadBalancer"
FREEZE, BINDING, ORDER = "optimizations.gcFreeze", "optimizations.coreBinding", "optimizations.promptOrder"
OF_THE_TRAINER = frozenset({SKIP, BALANCE})
"""Switches that shorten training; the others shorten the rollout."""
DRAFTS, GEARS = "rollout.speculative", "rollout.captureSizes"


@dataclass(frozen=True)
class PublishedShare:
    """A published saving, as a share of the rollout."""

    field: str
    share: float
    source: str


PUBLISHED = (
    PublishedShare(FREEZE, 1 - 4635.82 / 4851.98, f"{RECIPES}, Qwen3-235B: 4,852 to 4,636 s"),
    PublishedShare(BINDING, 1 - 4192.09 / 4635.82, f"{RECIPES}, Qwen3-235B: 4,636 to 4,192 s"),
    PublishedShare(DRAFTS, 0.096, f"{RECIPES}, drafts from the response itself: 9.6 to 11.5 % of the rollout"),
    PublishedShare(
        ORDER, 1 - 1 / 1.2, f"{RECIPES}, Qwen3-30B-A3B: about 20 % more tokens a second, from the second epoch on"
    ),
)


@dataclass(frozen=True)
class Effect:
    """One switch."""

    field: str
    enabled: bool
    """The job has it on already."""
    saved: float
    """Seconds of a step that it saves, or has saved if it is on; 0 if it has nothing to do."""
    origin: Origin
    reason: str
    """The source of the number, or why there is nothing to save."""


def effects(job: Job, layout: Candidate, trace: Trace) -> tuple[Effect, ...]:
    """Return every switch for a layout, what saves most first, what is on already last."""
    all_ = (*_modelled(job, layout, trace), *_published(job, layout))
    found = [_possible(job, _overlapped(layout.seconds, effect)) for effect in all_]
    return tuple(sorted(found, key=lambda effect: (effect.enabled, -effect.saved, effect.field)))


def _overlapped(seconds: Seconds, effect: Effect) -> Effect:
    """Return what an effect saves of a step in which rollout and training overlap: nothing of the shorter one."""
    if seconds.transfer is None:
        return effect
    trains = effect.field in OF_THE_TRAINER
    own, other = (seconds.training, seconds.rollout) if trains else (seconds.rollout, seconds.training)
    off, on = (own + effect.saved, own) if effect.enabled else (own, own - effect.saved)
    saved = max(off, other) - max(on, other)
    if math.isclose(saved, effect.saved, abs_tol=1e-6):
        return effect
    waits = "generation" if trains else "training"
    reason = f"meanwhile, {waits} takes {other:,.0f} s; {effect.reason}"
    return replace(effect, saved=saved, origin=Origin.MODELLED, reason=reason)


def _possible(job: Job, effect: Effect) -> Effect:
    """Return an effect without a saving if validation would refuse the switch for this job."""
    obstacle = None if effect.enabled else job.obstacles.get(effect.field)
    return effect if obstacle is None else replace(effect, saved=0.0, origin=Origin.MODELLED, reason=obstacle)


def _published(job: Job, layout: Candidate) -> Iterator[Effect]:
    for row in PUBLISHED:
        enabled = row.field in job.enabled
        # The rollout of a job that has it on is what remains.
        saved = layout.seconds.rollout * row.share / (1 - row.share if enabled else 1)
        yield Effect(row.field, enabled, saved, Origin.PUBLISHED, row.source)


def _modelled(job: Job, layout: Candidate, trace: Trace) -> Iterator[Effect]:
    setup = rollout_setup(job, layout.layout.rollout, trace)
    yield _skip(job, layout)
    yield _balance(job, layout, trace)
    yield _late(job, setup, layout, trace)
    yield _gears(job, setup, layout, trace)


def _effect(job: Job, field: str, saved: float, reason: str) -> Effect:
    return Effect(field, field in job.enabled, max(0.0, saved), Origin.MODELLED, reason)


def _skip(job: Job, layout: Candidate) -> Effect:
    if job.updates > 1:
        return _effect(job, SKIP, 0.0, f"{job.updates} updates of a batch need the old log-probabilities")
    enabled = SKIP in job.enabled
    one = layout.forward_seconds
    return _effect(job, SKIP, one, "one pass for log-probabilities" + (", which is skipped" if enabled else ""))


def _balance(job: Job, layout: Candidate, trace: Trace) -> Effect:
    ranks = job.trainer.devices // layout.layout.trainer.model
    waiting = waiting_share([request.tokens + request.prompt_tokens for request in trace.requests], ranks, job.updates)
    reason = f"{waiting:.1%} of the update is waiting with {ranks} ranks and {job.updates} updates a step"
    return _effect(job, BALANCE, layout.seconds.update * waiting, reason)


def waiting_share(lengths: Sequence[int], ranks: int, updates: int) -> float:
    """Return the share of the updates that ranks wait, if only the totals of the ranks are balanced.

    verl balances the totals and cuts each rank's list into updates (verl/trainer/ppo/v1/trainer_base.py:1608, 0.9.1).
    """
    order = sorted(range(len(lengths)), key=lambda index: -lengths[index])
    held: list[list[int]] = [[] for _ in range(ranks)]
    for position, index in enumerate(order):
        turn, rank = divmod(position, ranks)
        held[rank if turn % 2 == 0 else ranks - 1 - rank].append(index)
    longest = total = 0.0
    for update in range(updates):
        sums = []
        for numbers in held:
            kept = sorted(numbers)
            part = kept[len(kept) * update // updates : len(kept) * (update + 1) // updates]
            sums.append(sum(lengths[index] for index in part))
        longest += max(sums)
        total += sum(sums) / ranks
    return 1 - total / longest


def _late(job: Job, setup: Setup, layout: Candidate, trace: Trace) -> Effect:
    if setup.replicas * setup.engine.ranks == 1:
        return _effect(job, LATE, 0.0, "there is one engine, so there is nothing to choose")
    if not setup.waits:
        return _effect(job, LATE, 0.0, "all responses of a step are decoded at a time, so none waits")
    late = Policy("late", Placement.INTERLEAVED, setup.gears, admission=Admission.LONGEST_ESTIMATE)
    saved = layout.outcome.makespan - simulate(trace, setup.engine, late, setup.replicas).makespan
    return _effect(job, LATE, saved, "responses wait for an engine with room, prompts with long responses first")


def _gears(job: Job, setup: Setup, layout: Candidate, trace: Trace) -> Effect:
    halves = {max(1, setup.gears[-1] >> shift) for shift in range(setup.gears[-1].bit_length())}
    finer = tuple(sorted({*setup.gears, *halves}))
    if finer == setup.gears:
        return _effect(job, GEARS, 0.0, "every half of the largest size is captured")
    today = Policy("finer", Placement.INTERLEAVED, finer)
    saved = layout.outcome.makespan - simulate(trace, setup.engine, today, setup.replicas).makespan
    return _effect(job, GEARS, saved, f"sizes {', '.join(map(str, finer))}; each takes memory and time at the start")
