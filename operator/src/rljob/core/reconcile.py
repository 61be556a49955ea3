"""The one entry point: given all that was seen of an RLJob, what is to be done next.

Contract: total, deterministic, no I/O. The order of STEPS is the life of a job, read from the end: what is finished
stays finished, what is not valid is not begun, and each later step relies on what the earlier ones let pass. The first
step that has something to do, or must wait, decides.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from rljob.core.context import Context
from rljob.core.launcher import Launcher
from rljob.core.observed import Observed
from rljob.core.plan import Plan
from rljob.core.steps import (
    attempt_records,
    deleting,
    drift,
    driver_exit,
    finishing,
    host_ports,
    kuberay,
    node_health,
    orphan_clusters,
    partial_allocation,
    paused,
    pod_groups,
    preparing,
    restarting,
    running,
    starting,
    stopping,
)

Step = Callable[[Context], Plan | None]

STEPS: tuple[Step, ...] = (
    finishing.leave_foreign,  # another operator's
    paused.keep_off,  # the user's annotation
    deleting.let_go,  # our finalizer, when it has done its work
    deleting.save_first,  # a deleted job that it holds
    finishing.leave_deleted,  # garbage collection does the rest
    attempt_records.keep_evidence,  # of an attempt that ended, before its pods go
    host_ports.release_ports,  # before the job may be deleted
    pod_groups.release_groups,  # of generations that are over
    finishing.clean_up,  # Finished is final: free the NPUs, then nothing
    finishing.give_up_refused,  # a name belongs to somebody else
    orphan_clusters.free_strays,  # of a leader that woke too late
    preparing.recall,  # what it goes by; after a lost status: did it begin already?
    preparing.finish_again,
    preparing.await_recipes,
    preparing.validate_spec,  # nothing begins with a wrong spec
    drift.tell_changes,  # the job goes on with the spec that it began with
    stopping.begin_suspension,  # spec.suspend
    stopping.begin_preemption,
    stopping.await_end,  # a stop always completes
    stopping.tear_down,
    stopping.hold,  # free until spec.suspend is false
    restarting.end_overdue,  # deadlines.activeSeconds, between attempts
    restarting.back_off,
    node_health.return_nodes,  # their faults are gone
    node_health.await_nodes,
    partial_allocation.await_devices,
    preparing.await_source,  # checkpoint.from.job
    preparing.intend,  # write down names and numbers before anything is made
    starting.move_deadline,  # deadlines.startSeconds was edited
    driver_exit.take_rays_word,  # with its head gone, nobody knows better
    starting.find_lost_cluster,  # our cluster was there and is gone
    preparing.freeze_spec,
    preparing.freeze_code,
    preparing.initialize,  # before any NPU is held
    deleting.hold,  # stop.requireCheckpoint
    host_ports.reserve_ports,
    host_ports.recover_ports,
    pod_groups.await_volcano,
    starting.freeze_cluster,
    starting.create_cluster,
    starting.find_replaced_cluster,
    kuberay.await_kuberay,  # away, it has not looked at the cluster
    partial_allocation.release,  # some nodes are held, and the others are somebody else's
    starting.await_pods,
    starting.intend_attempt,
    running.find_lost_head,
    running.submit,
    running.record_submission,
    running.find_dead_head,
    running.follow,
)

BEFORE_INTENT = STEPS[: STEPS.index(preparing.intend)]


def reconcile(observed: Observed, now: datetime, launcher: Launcher) -> Plan:
    """Give the next step; an empty plan means that the world is as it should be."""
    context = Context(observed=observed, now=now, launcher=launcher)
    for step in STEPS:
        if (plan := step(context)) is not None:
            return plan
    raise AssertionError("the last step always decides")


def begins(observed: Observed, now: datetime, launcher: Launcher) -> bool:
    """Whether a job for which nothing was made would go on to `intend`, by what can be seen of it without a request."""
    context = Context(observed=observed, now=now, launcher=launcher)
    return all(step(context) is None for step in BEFORE_INTENT)
