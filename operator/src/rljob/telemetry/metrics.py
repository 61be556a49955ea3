"""Every metric of the operator process, described once. The names are an interface for alerts and dashboards.

`__main__` creates one `Metrics` and passes it on. It has its own registry, so that tests do not share counters. Label
values come from closed sets (verbs, kinds, codes, states, causes) and never contain a job's name, which would grow
without bound. Metrics by namespace and queue, a place, are kept for `PLACES_MAX` places; docs/reference/metrics.md has
the formula.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from rljob.api.recovery_time import RecoveryCause
from rljob.api.status import AttemptOutcome, FailureCause, State
from rljob.core.attempts.job_summary import Deadline

# Disable the additional series per counter and histogram with its creation time, which nobody uses.
disable_created_metrics()  # type: ignore[no-untyped-call] # the library types all but this one

PLACES_MAX = 500
"""Number of pairs of namespace and queue with their own series; all others are counted together as `other`."""

QUEUES_MAX = 20
"""Number of queues of a namespace with their own series: tenants choose the names of their queues, and one of them must
not use up the places of all."""

Place = tuple[str, str]
"""Namespace and queue; an empty queue means none."""
# Prometheus would replace a label `namespace` by that of the operator's pod, as it labels targets.
_PLACE = ("rljob_namespace", "queue")

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 30, 60)
"""The target for 99 of 100 reconciliations is two seconds (tests/scale/report.py), so there are buckets close to it."""
_HOURS = (10, 30, 60, 300, 900, 1800, 3600, 4 * 3600, 12 * 3600, 86400, 3 * 86400, 7 * 86400)
"""Seconds. A start takes minutes, a queue days."""
_PREFIX = "rljob_operator"


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.before_exposition: Callable[[], None] = lambda: None
        """Functions that update what changes with time alone."""
        self.label_names: dict[str, tuple[str, ...]] = {}
        """Label names by name of the metric, without a counter's `_total`."""
        self.reconciles = self._counter("reconcile", "Reconciliations of one job.", "result")
        self.reconcile_seconds = self._histogram("reconcile_duration_seconds", "Duration of one reconciliation.")
        self.reconcile_errors = self._counter("reconcile_errors", "Failed reconciliations, by type of error.", "reason")
        self.active_workers = self._gauge("active_workers", "Busy workers.")

        self.queue_depth = self._gauge("queue_depth", "Jobs that are waiting for a worker.")
        self.queue_adds = self._counter("queue_adds", "Jobs added to the queue.")
        self.queue_retries = self._counter("queue_retries", "Jobs added to the queue again after an error.")
        self.queue_wait_seconds = self._histogram(
            "queue_duration_seconds",
            "Time that a job waited for a worker, by lane: begun, new (until its first reconciliation), "
            "to_begin (until it may start).",
            "lane",
            buckets=(*_SECONDS, 120, 300),
        )
        self.queue_work_seconds = self._histogram("queue_work_duration_seconds", "Time that a worker held a job.")
        self.queue_longest_running = self._gauge(
            "queue_longest_running_seconds", "Duration of the longest running reconciliation."
        )

        self.api_requests = self._counter("api_requests", "Requests to the API server.", "verb", "resource", "code")
        self.api_writes = self._counter("api_writes", "Writes that the API server committed.", "verb", "resource")
        self.api_request_seconds = self._histogram("api_request_duration_seconds", "Duration of a request.", "verb")
        self.api_throttle_seconds = self._histogram(
            "api_throttle_seconds", "Time that a request waited for the client-side limiter."
        )
        self.ray_requests = self._counter("ray_requests", "Requests to Ray head pods.", "call", "code")

        self.watch_events = self._counter("watch_events", "Events delivered by watches.", "kind", "type")
        self.watch_last_event = self._gauge("watch_last_event_timestamp_seconds", "Time of the last event.", "kind")
        self.kind_served = self._gauge("kind_served", "1 if the API server serves this kind.", "kind")
        self.store_objects = self._gauge("store_objects", "Objects in the store.", "kind")
        self.resync_drift = self._counter(
            "resync_drift", "Changes that a resync found and no watch had delivered.", "kind", "drift"
        )
        self.resync_failures = self._counter("resync_failures", "Resyncs that failed to list.", "kind")
        self.resync_last_success = self._gauge("resync_last_success_timestamp_seconds", "Time of the last resync.")

        self.device_seconds = self._counter("device_seconds", "Device-seconds held by runs.", *_PLACE)
        self.productive_device_seconds = self._counter(
            "productive_device_seconds", "Device-seconds spent on steps that no later attempt repeated.", *_PLACE
        )
        self.card_seconds = self._counter("card_seconds", "Card-seconds held by runs.", *_PLACE)
        self.productive_card_seconds = self._counter(
            "productive_card_seconds", "Card-seconds spent on steps that no later attempt repeated.", *_PLACE
        )
        self.devices_held = self._gauge("devices_held", "Devices currently held by runs.", *_PLACE)
        self.goodput = self._gauge(
            "goodput_ratio",
            "Productive device-seconds divided by held device-seconds, over the life of existing jobs.",
            *_PLACE,
        )
        self._describe_jobs()

        self.events = self._counter("events", "Kubernetes events by outcome.", "result")
        self.status_differs = self._counter("status_differs", "Status writes that the server did not store as sent.")
        self.leader = self._gauge("leader", "1 while this process holds the Lease.")
        self.build_info = self._gauge("build_info", "Always 1.", "version")
        self.build_info.labels(version("rljob")).set(1)

    def open_place(self, place: Place) -> None:
        """Create a place's counters at 0, because Prometheus sees no increase in a counter that starts at 1."""
        for cause in (FailureCause.USER, FailureCause.INFRASTRUCTURE, FailureCause.PREEMPTION):
            self.restarts.labels(*place, cause)
        for outcome in AttemptOutcome:
            for saved in ("true", "false"):
                self.attempts.labels(*place, outcome, saved)
        for lost in RecoveryCause:
            self.recovery_seconds.labels(*place, lost)
        for deadline in Deadline:
            self.deadlines_exceeded.labels(*place, deadline)
        for state in (State.SUCCEEDED, State.FAILED, State.STOPPED):
            self.jobs_finished.labels(*place, state)
        self.job_queue_seconds.labels(*place)

    def exposition(self) -> bytes:
        """Return the text that Prometheus scrapes."""
        self.before_exposition()
        return generate_latest(self.registry)

    def _describe_jobs(self) -> None:
        """Describe the metrics of `telemetry.jobs`: states of jobs and their changes."""
        self.jobs = self._gauge("jobs", "Existing RLJobs, by status.state.", *_PLACE, "state")
        self.jobs_stalled = self._gauge(
            "jobs_stalled",
            "Jobs in training without a step for three times the usual step, and at least ten minutes.",
            *_PLACE,
        )
        self.jobs_silent = self._gauge(
            "jobs_silent", "Jobs whose head pod does not answer. It is unknown whether they make progress.", *_PLACE
        )
        self.jobs_without_budget = self._gauge(
            "jobs_restart_budget_spent",
            "Unfinished jobs that have used up maxRestarts or maxInfrastructureRestarts: the next such "
            "failure ends them.",
            *_PLACE,
        )
        self.oldest_step = self._gauge(
            "oldest_step_seconds",
            "Longest time since a running attempt completed a step, or was submitted; 0 if none is running.",
            *_PLACE,
        )
        self.oldest_checkpoint = self._gauge(
            "oldest_checkpoint_seconds",
            "Longest time that a running attempt would lose: since its last checkpoint, or since it was "
            "submitted; 0 if none is running.",
            *_PLACE,
        )
        self.longest_suspended = self._gauge(
            "longest_suspended_seconds", "Longest time that a currently suspended job has been suspended.", *_PLACE
        )
        self.longest_queued = self._gauge(
            "longest_queued_seconds",
            "Longest time that a currently queued job has been waiting for its queue.",
            *_PLACE,
        )

        self.restarts = self._counter(
            "restarts", "Attempts that replaced one that did not end well, by cause.", *_PLACE, "cause"
        )
        self.attempts = self._counter(
            "attempts",
            "Ended attempts, by outcome; saved: false if steps were lost that no checkpoint contains.",
            *_PLACE,
            "outcome",
            "saved",
        )
        self.recovery_seconds = self._counter(
            "recovery_seconds",
            "Seconds from the last step of an attempt to the first step of the next one, by cause; Repeated: further "
            "steps that were done before.",
            *_PLACE,
            "cause",
        )
        self.deadlines_exceeded = self._counter(
            "deadlines_exceeded", "Deadlines of jobs that passed (Start, Active, Progress).", *_PLACE, "deadline"
        )
        self.jobs_finished = self._counter("jobs_finished", "Finished jobs, by result.", *_PLACE, "state")
        self.job_queue_seconds = self._histogram(
            "job_queue_wait_seconds",
            "Time from the intent of a job's cluster, or its preemption, until the queue admitted it.",
            *_PLACE,
            buckets=_HOURS,
        )
        self.state_seconds = self._histogram(
            "state_duration_seconds",
            "Time that a job stayed in a state, if this process saw both its start and its end.",
            "state",
            buckets=_HOURS,
        )

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(self._named(name, labels), text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(self._named(name, labels), text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = _SECONDS) -> Histogram:
        return Histogram(self._named(name, labels), text, labels, registry=self.registry, buckets=buckets)

    def _named(self, name: str, labels: tuple[str, ...]) -> str:
        full = f"{_PREFIX}_{name}"
        self.label_names[full] = labels
        return full
