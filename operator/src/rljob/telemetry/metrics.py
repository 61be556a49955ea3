"""Every metric of the operator process, described once; the names are an interface that alerts and dashboards use.

One `Metrics` is made in `__main__` and handed down. It holds its own registry, so that tests do not share counters.
Label values come from closed sets (verbs, kinds, codes, reasons): never a job's name, which would grow without bound.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_PREFIX = "rljob_operator"


class Metrics:
    """The metrics of one process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.before_exposition: Callable[[], None] = lambda: None
        """Brings up to date what rises with time alone."""
        self.reconciles = self._counter("reconcile", "Rounds of reconciling one job.", "result")
        self.reconcile_seconds = self._histogram("reconcile_duration_seconds", "Time of one round.")
        self.reconcile_errors = self._counter("reconcile_errors", "Rounds that failed, by type of error.", "reason")
        self.active_workers = self._gauge("active_workers", "Workers that are at work now.")

        self.queue_depth = self._gauge("queue_depth", "Jobs that wait for a worker.")
        self.queue_adds = self._counter("queue_adds", "Jobs put into the queue.")
        self.queue_retries = self._counter("queue_retries", "Jobs put back after an error.")
        self.queue_wait_seconds = self._histogram("queue_duration_seconds", "Time that a job waited for a worker.")
        self.queue_work_seconds = self._histogram("queue_work_duration_seconds", "Time that a worker held a job.")
        self.queue_longest_running = self._gauge("queue_longest_running_seconds", "Oldest round that still runs.")

        self.api_requests = self._counter("api_requests", "Requests to the API server.", "verb", "resource", "code")
        self.api_writes = self._counter("api_writes", "Writes that the API server committed.", "verb", "resource")
        self.api_request_seconds = self._histogram("api_request_duration_seconds", "Time of a request.", "verb")
        self.api_throttle_seconds = self._histogram("api_throttle_seconds", "Time a request waited for our limiter.")
        self.ray_requests = self._counter("ray_requests", "Requests to Ray head pods.", "call", "code")

        self.watch_events = self._counter("watch_events", "Events that watches delivered.", "kind", "type")
        self.watch_last_event = self._gauge("watch_last_event_timestamp_seconds", "Time of the last event.", "kind")
        self.kind_served = self._gauge("kind_served", "1 if the API server serves this kind.", "kind")
        self.store_objects = self._gauge("store_objects", "Objects in the store.", "kind")
        self.resync_drift = self._counter("resync_drift", "Changes that no watch had delivered.", "kind", "drift")
        self.resync_failures = self._counter("resync_failures", "Resyncs that could not list.", "kind")
        self.resync_last_success = self._gauge("resync_last_success_timestamp_seconds", "Time of the last resync.")

        # `namespace` would be taken for that of the operator's pod, as Prometheus labels its targets.
        place = ("rljob_namespace", "queue")
        self.device_seconds = self._counter("device_seconds", "Devices times the seconds that runs held them.", *place)
        self.productive_device_seconds = self._counter(
            "productive_device_seconds", "Of these, what went into steps that no later attempt repeats.", *place
        )
        self.card_seconds = self._counter("card_seconds", "Cards times the seconds that runs held them.", *place)
        self.productive_card_seconds = self._counter(
            "productive_card_seconds", "Of these, what went into steps that no later attempt repeats.", *place
        )
        self.devices_held = self._gauge("devices_held", "Devices that runs hold now.", *place)
        self.goodput = self._gauge(
            "goodput_ratio", "Productive over held device-seconds, over the life of the jobs that exist.", *place
        )

        self.events = self._counter("events", "Kubernetes events by what became of them.", "result")
        self.status_differs = self._counter("status_differs", "Status writes that the server did not keep as sent.")
        self.leader = self._gauge("leader", "1 while this process holds the Lease.")
        self.build_info = self._gauge("build_info", "Always 1.", "version")
        self.build_info.labels(version("rljob")).set(1)

    def exposition(self) -> bytes:
        """Give the text that Prometheus scrapes."""
        self.before_exposition()
        return generate_latest(self.registry)

    def _counter(self, name: str, text: str, *labels: str) -> Counter:
        return Counter(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _gauge(self, name: str, text: str, *labels: str) -> Gauge:
        return Gauge(f"{_PREFIX}_{name}", text, labels, registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(f"{_PREFIX}_{name}", text, labels, registry=self.registry, buckets=_SECONDS)
