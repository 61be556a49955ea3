"""What the queue says of the cluster, kept in the condition Admitted.

With Kueue, the cluster was made suspended, and Kueue alone turns that round: when there is quota for all of it, and
back when the pods have to go. With Volcano, the pods are there, and none gets a node before all can have one. The wait
itself is `starting.await_pods`; the time in the queue counts against no deadline.
"""

from __future__ import annotations

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus
from rljob.core import clock, status
from rljob.core.policies.gang import judge_group
from rljob.core.policies.queueing import Admission, is_queued, judge_admission
from rljob.core.view import View

NO_WORKLOAD_SECONDS = 30
"""A Workload comes within a second of its cluster; one that is not there by now is worth a word."""


def with_admission(view: View, current: RLJobStatus, *, started: bool = False) -> RLJobStatus:
    """Give the status with what is known of the admission of the intended cluster; `started`: all pods are ready."""
    seen = admission_of(view, started=started)
    if seen is None:
        return current
    if seen.value is ConditionStatus.TRUE and status.is_true(current, ConditionType.ADMITTED):
        # Said once: where its quota comes from does not change while it runs.
        return current
    return view.writer.with_condition(current, ConditionType.ADMITTED, seen.value, seen.reason, seen.message)


def admission_of(view: View, *, started: bool = False) -> Admission | None:
    """Say what Kueue, or else Volcano, says of the intended cluster; None: neither has a word."""
    cluster = view.cluster
    if cluster is None:
        return None
    if is_queued(cluster):
        patient = view.now < clock.after(cluster["metadata"]["creationTimestamp"], NO_WORKLOAD_SECONDS)
        return judge_admission(cluster, view.observed.workload, patient=patient)
    return None if view.pod_group is None else judge_group(view.pod_group, view.observed.head_pod, started=started)
