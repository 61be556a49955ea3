"""What the queue says of the cluster, kept in the condition Admitted.

The cluster was made suspended, and Kueue alone turns that round: when there is quota for all of it, and back when the
pods have to go. The wait itself is `starting.await_pods`; the time in the queue counts against no deadline.
"""

from __future__ import annotations

from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus
from rljob.core import clock, status
from rljob.core.policies.queueing import is_queued, judge_admission
from rljob.core.view import View

NO_WORKLOAD_SECONDS = 30
"""A Workload comes within a second of its cluster; one that is not there by now is worth a word."""


def with_admission(view: View, current: RLJobStatus) -> RLJobStatus:
    """Give the status with what is known of the admission of the intended cluster."""
    cluster = view.cluster
    if cluster is None or not is_queued(cluster):
        return current
    patient = view.now < clock.after(cluster["metadata"]["creationTimestamp"], NO_WORKLOAD_SECONDS)
    seen = judge_admission(cluster, view.observed.workload, patient=patient)
    if seen.value is ConditionStatus.TRUE and status.is_true(current, ConditionType.ADMITTED):
        # Said once: where its quota comes from does not change while it runs.
        return current
    return view.writer.with_condition(current, ConditionType.ADMITTED, seen.value, seen.reason, seen.message)
