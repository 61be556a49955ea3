"""How often something is looked at again, where several steps share the interval."""

from __future__ import annotations

from datetime import datetime

from rljob.core.manifest_facts import age_seconds
from rljob.core.observed import PROGRESS_WRITE_SECONDS, Manifest

LEAVING_POLL_SECONDS = 2.0
"""While the head pod is being deleted, its exporter answers for a few seconds only."""
SUBMIT_POLL_SECONDS = 2.0
"""While a submission waits for the answer of a head that is starting, or was just sent."""
LOOK_AGAIN_SECONDS = 5.0
"""After a fact could not be read."""
HEAD_POLL_SECONDS_MIN, HEAD_POLL_SECONDS_MAX = 10.0, 60.0
"""Bounds of the interval between two requests to the exporter: a tenth of a step."""
START_WRITE_SECONDS = 10.0
"""Shortest interval between two reports of a start, unless many jobs share the rate of writes: a start has fewer than
twenty stages, and most of them last for seconds."""
SILENCE_REPORTED_SECONDS = 300.0
"""A head that is busy for a few polls is not worth a report; one that is silent for five minutes is."""
POD_QUIET_SECONDS = 10.0
"""The pods of a younger cluster are not listed: a report on them would be outdated before anybody reads it."""
POD_POLL_SECONDS_MIN, POD_POLL_SECONDS_MAX = 5.0, 60.0
"""Bounds of the interval between two LISTs of pods that start: a fourth of the cluster's age."""


def quiet_seconds(cluster: Manifest, now: datetime) -> float:
    """Return for how much longer the pods of a cluster need not be listed; 0 once they are worth a request."""
    return max(0.0, POD_QUIET_SECONDS - age_seconds(cluster, now))


def pod_poll_seconds(cluster: Manifest | None, now: datetime) -> float:
    """Return the interval before the pods that start are looked at again."""
    return LOOK_AGAIN_SECONDS if cluster is None else _bounded(age_seconds(cluster, now) / 4)


def pods_every_seconds(cluster: Manifest, now: datetime) -> float:
    """Return how old the last LIST of a cluster's pods must be: each comes at 5/4 of the age of the one before.

    KubeRay updates its status for every worker that becomes ready, and each update would cost a LIST and perhaps a
    status write.
    """
    return _bounded(age_seconds(cluster, now) / 5)


def _bounded(seconds: float) -> float:
    return min(max(seconds, POD_POLL_SECONDS_MIN), POD_POLL_SECONDS_MAX)


def start_write_seconds(progress_write_seconds: float) -> float:
    """Return the shortest interval between two reports of a start."""
    return progress_write_seconds if progress_write_seconds > PROGRESS_WRITE_SECONDS else START_WRITE_SECONDS
