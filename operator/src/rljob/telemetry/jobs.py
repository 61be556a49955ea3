"""Metrics of the jobs by namespace and queue: states, restarts, waiting times, ages.

The source is each job's status, as for device time: a counter rises only by changes that this process has seen, and
gauges are recomputed from the existing jobs. `telemetry.ledger` calls this module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from rljob.api.lifecycle import Restart
from rljob.api.status import State
from rljob.core.attempts.job_summary import Standing
from rljob.telemetry.metrics import Metrics, Place


@dataclass
class Story:
    """One job as it was last seen."""

    standing: Standing
    state_since: datetime | None = None
    """None: since before this process saw the job."""
    restart: Restart = field(default_factory=Restart)
    """From the merged spec; without restarts until the first reconciliation reports it."""

    def go_on(self, metrics: Metrics, place: Place, now_stands: Standing, now: datetime) -> None:
        """Count the changes since the last call."""
        before, self.standing = self.standing, now_stands
        if now_stands.state is not before.state:
            if self.state_since is not None:
                metrics.state_seconds.labels(before.state).observe(_seconds(self.state_since, now))
            self.state_since = now
            if now_stands.finished:
                metrics.jobs_finished.labels(*place, now_stands.state).inc()
        admitted = now_stands.queued_since is None and now_stands.state in (State.STARTING, State.TRAINING)
        if before.queued_since is not None and admitted:
            metrics.job_queue_seconds.labels(*place).observe(_seconds(before.queued_since, now))
        if now_stands.deadline not in (None, before.deadline):
            metrics.deadlines_exceeded.labels(*place, now_stands.deadline).inc()
        self._count_restarts(metrics, place, before)
        known = {attempt.number for attempt in before.ended}
        for attempt in now_stands.ended:
            if attempt.number not in known:
                metrics.attempts.labels(*place, attempt.outcome, str(attempt.saved).lower()).inc()
        self._count_recoveries(metrics, place, before)

    def _count_recoveries(self, metrics: Metrics, place: Place, before: Standing) -> None:
        counted = {recovery.number for recovery in before.recoveries}
        for recovery in self.standing.recoveries:
            if recovery.number not in counted:
                for cause, seconds in recovery.seconds.items():
                    metrics.recovery_seconds.labels(*place, cause).inc(seconds)

    def _count_restarts(self, metrics: Metrics, place: Place, before: Standing) -> None:
        """Count restarts with the failures that caused them; the last failure of a job causes no restart."""
        restarts = self.standing.restarts - before.restarts
        for cause, count in self.standing.failures.items():
            more = min(count - before.failures[cause], restarts)
            if more > 0:
                metrics.restarts.labels(*place, cause).inc(more)
                restarts -= more


@dataclass
class _Sums:
    """The gauges of one place."""

    states: dict[State, int] = field(default_factory=lambda: dict.fromkeys(State, 0))
    stalled: int = 0
    silent: int = 0
    without_budget: int = 0
    step_age: float = 0.0
    checkpoint_age: float = 0.0
    suspended: float = 0.0
    queued: float = 0.0

    def add(self, story: Story, now: datetime) -> None:
        stands = story.standing
        self.states[stands.state] += 1
        self.stalled += stands.stalled(now)
        self.silent += stands.silent
        self.without_budget += stands.spent(story.restart)
        self.suspended = max(self.suspended, _seconds(stands.suspended_since, now))
        self.queued = max(self.queued, _seconds(stands.queued_since, now))
        if stands.run is not None:
            self.step_age = max(self.step_age, _seconds(stands.run.step_time, now))
            self.checkpoint_age = max(self.checkpoint_age, _seconds(stands.run.saved_time, now))


def tell_jobs(metrics: Metrics, jobs: Iterable[tuple[Place, Story]], now: datetime) -> None:
    """Set the gauges of all places that have jobs."""
    places: dict[Place, _Sums] = defaultdict(_Sums)
    for place, story in jobs:
        places[place].add(story, now)
    gauges = {
        metrics.jobs_stalled: "stalled",
        metrics.jobs_silent: "silent",
        metrics.jobs_without_budget: "without_budget",
        metrics.oldest_step: "step_age",
        metrics.oldest_checkpoint: "checkpoint_age",
        metrics.longest_suspended: "suspended",
        metrics.longest_queued: "queued",
    }
    for gauge in (metrics.jobs, *gauges):
        gauge.clear()
    for place, sums in places.items():
        for state, count in sums.states.items():
            metrics.jobs.labels(*place, state).set(count)
        for gauge, name in gauges.items():
            gauge.labels(*place).set(getattr(sums, name))


def _seconds(since: datetime | None, now: datetime) -> float:
    return max((now - since).total_seconds(), 0.0) if since is not None else 0.0
