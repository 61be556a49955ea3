"""Simulate the rollout of one batch."""

from __future__ import annotations

import dataclasses

from rljob.planner.rollout.outcome import Outcome, Totals, summarize
from rljob.planner.rollout.policies import Admission, Policy, place
from rljob.planner.rollout.queueing import Pool, Queue, RankQueues, SharedQueue
from rljob.planner.rollout.replica import Engine, Replica, Source
from rljob.planner.rollout.state import BLOCK, Ranks
from rljob.planner.rollout.traces import Trace


def simulate(trace: Trace, engine: Engine, policy: Policy, replicas: int = 1) -> Outcome:
    """Return what happens to a batch on equal replicas, each of which decodes in lockstep on its own.

    Raise ValueError if a response can never fit into the cache of a rank.
    """
    largest = max(request.tokens + request.prompt_tokens for request in trace.requests)
    if engine.cache_tokens is not None and largest + BLOCK > engine.cache_tokens:
        raise ValueError(
            f"a response of {largest:,} tokens with its prompt does not fit into the cache of a rank, which has "
            f"{engine.cache_tokens:,}"
        )
    all_ = [Replica(trace.requests, engine, policy, source) for source in _queues(trace, engine, policy, replicas)]
    for replica in all_:
        replica.begin()
    while busy := [replica for replica in all_ if replica.busy]:
        # The events of all replicas in the order of time, because they may share a queue.
        next_ = min(busy, key=Replica.next_seconds) if len(busy) > 1 else busy[0]
        next_.advance()
    return _together(trace, all_, floor_seconds(trace, engine, policy, replicas))


def _queues(trace: Trace, engine: Engine, policy: Policy, replicas: int) -> list[Source]:
    placed = place(trace.requests, replicas * engine.ranks, policy.placement)
    if policy.admission is Admission.LONGEST_ESTIMATE and max(map(len, placed)) > engine.sequences:
        pool = Pool(trace.requests)
        return [lambda ranks: SharedQueue(pool, ranks)] * replicas

    def own(first: int) -> Source:
        def queue(ranks: Ranks) -> Queue:
            return RankQueues(placed[first : first + engine.ranks], ranks)

        return queue

    return [own(replica * engine.ranks) for replica in range(replicas)]


def floor_seconds(trace: Trace, engine: Engine, policy: Policy, replicas: int) -> float:
    """Return the larger of two bounds: the longest response alone, and all tokens in the cheapest rows."""
    alone = engine.step_time.seconds(policy.gear(1), 0, 0.0, trace.longest)
    tokens = sum(request.tokens for request in trace.requests)
    cheapest = min(engine.step_time.seconds(gear, 0, 0.0, 1) / gear for gear in policy.gears)
    return max(alone, tokens / (replicas * engine.ranks) * cheapest)


def _together(trace: Trace, replicas: list[Replica], floor: float) -> Outcome:
    """Return the outcome of all replicas; those that are done wait for the last."""
    end = max(replica.totals.seconds for replica in replicas)
    sums = Totals()
    for field in dataclasses.fields(Totals):
        setattr(sums, field.name, sum(getattr(replica.totals, field.name) for replica in replicas))
    slowest = max(replicas, key=lambda replica: replica.totals.seconds)
    sums.idle_rank_seconds += sum((end - replica.totals.seconds) * len(replica.ranks.all) for replica in replicas)
    sums.seconds, sums.steps = end, slowest.totals.steps
    return summarize(
        trace,
        sums,
        [rank.last_busy for replica in replicas for rank in replica.ranks.all],
        sorted(when for replica in replicas for when in replica.finishes),
        slowest.gears,
        floor,
    )
