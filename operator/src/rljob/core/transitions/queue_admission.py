"""What the queue reports about the cluster, kept in the condition Admitted.

With Kueue, the cluster is created suspended, and only Kueue changes that: it resumes the cluster once there is quota
for all of it, and suspends it again when the pods have to go. With Volcano, the pods exist, and none gets a node before
all can have one. The wait itself is `starting.await_pods`; the time in the queue counts against no deadline.
"""

from __future__ import annotations

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus
from rljob.core import status, times
from rljob.core.context import Context
from rljob.core.scheduling.gang import judge_group
from rljob.core.scheduling.kueue import Admission, is_queued, judge_admission

NO_WORKLOAD_SECONDS = 30
"""Kueue creates a Workload within a second of its cluster; one that is missing for this long is worth reporting."""


def with_admission(context: Context, current: RLJobStatus, *, started: bool = False) -> RLJobStatus:
    """Return the status with the admission of the intended cluster; `started`: all pods are ready."""
    seen = admission_of(context, started=started)
    if seen is None:
        return current
    if seen.value is ConditionStatus.TRUE and status.is_true(current, ConditionType.ADMITTED):
        # Reported once: where the quota comes from does not change while the cluster runs.
        return current
    return context.writer.with_condition(current, ConditionType.ADMITTED, seen.value, seen.reason, seen.message)


def admission_of(context: Context, *, started: bool = False) -> Admission | None:
    """Return what Kueue or Volcano reports about the intended cluster; None if neither manages it."""
    cluster = context.cluster
    if cluster is None:
        return None
    if is_queued(cluster):
        patient = context.now < times.after(cluster["metadata"]["creationTimestamp"], NO_WORKLOAD_SECONDS)
        return judge_admission(cluster, context.observed.workload, patient=patient)
    return (
        None
        if context.pod_group is None
        else judge_group(context.pod_group, context.observed.head_pod, started=started)
    )
