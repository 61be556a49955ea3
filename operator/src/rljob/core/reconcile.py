"""The one entry point: given all that was seen of an RLJob, decide what to do next.

Contract: total, deterministic, no I/O. The order of STEPS is their precedence: what ends a job comes before what begins
it, and that before what follows its run. A finished job therefore stays finished, an invalid job does not begin, and
each step relies on what the earlier ones let pass. The first step that has something to do, or must wait, decides.
"""

from __future__ import annotations

from collections.abc import Generator
from datetime import datetime

from rljob.api.status import ConditionStatus, ConditionType, State
from rljob.core import status
from rljob.core.context import Context
from rljob.core.derived import Derived
from rljob.core.launcher import LauncherOf
from rljob.core.observed import Observed
from rljob.core.plan import Plan
from rljob.core.reasons import Reason
from rljob.core.requirements import NOTHING, Requirements
from rljob.core.step import Step
from rljob.core.steps import (
    attempt_records,
    deleting,
    drift,
    driver_exit,
    evaluating,
    exporting,
    failing_containers,
    finishing,
    following,
    freezing,
    generation,
    host_ports,
    initializing,
    kuberay,
    node_health,
    orphan_clusters,
    partial_allocation,
    paused,
    pod_groups,
    recovering,
    requests,
    restarting,
    shared_services,
    starting,
    stopping,
    submitting,
    validating,
)
from rljob.core.transitions.checkpoint_consumers import CONSUMERS
from rljob.core.watched import Watched
from rljob.render.accelerator_table import AcceleratorTable

BEFORE_INTENT: tuple[Step, ...] = (
    finishing.leave_foreign,  # another operator's
    paused.keep_off,  # the user's annotation
    deleting.let_go,  # our finalizer, when it is no longer needed
    stopping.stop_deleted,  # a deleted job that our finalizer holds
    finishing.leave_deleted,  # garbage collection does the rest
    attempt_records.keep_evidence,  # of an attempt that ended, before its pods are gone
    host_ports.release_ports,  # before the job may be deleted
    pod_groups.release_groups,  # of ended generations
    shared_services.release_services,  # of a job that has finished or is suspended
    exporting.export_checkpoints,  # beside everything else, also when the job has finished
    evaluating.evaluate_checkpoints,  # likewise
    requests.refuse_to_go_on,  # spec.stop.requested was taken back too late
    finishing.clean_up,  # Finished is final: free the NPUs, then nothing
    finishing.give_up_refused,  # a child's name belongs to an object of somebody else
    orphan_clusters.delete_orphans,  # of a former leader that woke up late
    recovering.recall,  # the snapshot; after a lost status: did the job begin already?
    recovering.finish_again,
    requests.end,  # spec.stop.requested, whatever the job waits for
    validating.await_recipes,
    validating.validate_spec,  # nothing begins with an invalid spec
    drift.report_changes,  # the job keeps the spec that it began with
    stopping.begin_suspension,  # spec.suspend
    stopping.begin_preemption,
    requests.restart,  # the user's annotation
    requests.hasten,  # a stop that was asked to be immediate
    stopping.await_end,  # a stop always completes
    stopping.tear_down,
    stopping.hold,  # until spec.suspend is false
    restarting.end_overdue,  # deadlines.activeSeconds, between attempts
    restarting.back_off,
    node_health.return_nodes,  # whose faults are gone
    node_health.await_nodes,
    partial_allocation.await_devices,
    validating.await_source,  # checkpoint.from.job
)
"""What may keep a job from beginning."""

STEPS: tuple[Step, ...] = (
    *BEFORE_INTENT,
    generation.pace,  # clusters that a user asks for
    generation.intend,  # write names and numbers before anything is created
    starting.move_deadline,  # deadlines.startSeconds was edited
    driver_exit.close_without_head,  # with the head gone, Ray's report is the last one
    starting.find_lost_cluster,  # the cluster existed and is gone
    freezing.freeze_spec,
    freezing.freeze_code,
    initializing.initialize,  # before any NPU is held
    deleting.hold,  # stop.requireCheckpoint, or a Ray without tokens
    host_ports.reserve_ports,
    host_ports.recover_ports,
    pod_groups.await_volcano,
    freezing.freeze_cluster,
    shared_services.await_services,  # before any NPU is requested
    starting.create_cluster,
    starting.find_replaced_cluster,
    kuberay.await_kuberay,  # it is away and has not seen the cluster
    partial_allocation.release,  # some nodes are held, and other jobs have the rest
    failing_containers.end_hopeless_start,  # containers end in the same way again and again
    starting.await_pods,
    starting.intend_attempt,
    following.find_lost_head,
    submitting.submit,
    submitting.record_submission,
    following.find_killed_ray,
    driver_exit.close_ended,
    driver_exit.await_report,  # Ray reported the end before the exporter
    following.find_lost_workers,  # an end that is known counts for more
    following.find_lost_driver,
    following.hold_deadlines,
    node_health.act_on_faults,
    following.follow,
)


def required(seen: Watched) -> Requirements:
    """Return the requests of the steps that may decide, up to the first one that decides in any case."""
    total = NOTHING
    for step in STEPS:
        wanted = step.requires(seen)
        if wanted != NOTHING:
            total |= wanted
        if wanted.stops_here:
            break
    return total


def reconcile(
    observed: Observed,
    now: datetime,
    launcher: LauncherOf,
    accelerators: AcceleratorTable,
    derived: Derived | None = None,
) -> Plan:
    """Return the next step; an empty plan means that the world is as it should be.

    `derived` keeps what follows from spec, snapshots and recipes alone between rounds in which these are the same.
    """
    context = Context.of(observed, now, launcher, accelerators, derived)
    for step in STEPS:
        if (plan := step(context)) is not None:
            for row in CONSUMERS:
                plan = row.paced(context.status, plan)
            return plan
    raise AssertionError("the last step always decides")


def begins(
    observed: Observed,
    now: datetime,
    launcher: LauncherOf,
    accelerators: AcceleratorTable,
    derived: Derived | None = None,
) -> Generator[None, None, bool]:
    """Report whether a job without children would reach `intend`, by what can be seen of it without a request.

    It is computed in parts, because nothing else lets the event loop do other work when many large jobs are created.
    """
    context = Context.of(observed, now, launcher, accelerators, derived)
    for step in BEFORE_INTENT:
        if step is validating.validate_spec:
            yield from context.checking()
        yield
        if step(context) is not None:
            return False
    return True


def await_turn(
    observed: Observed,
    now: datetime,
    launcher: LauncherOf,
    accelerators: AcceleratorTable,
    derived: Derived | None = None,
) -> Plan:
    """Return the first status of a job that begins only after many others; an empty plan if it is known to be valid."""
    context = Context.of(observed, now, launcher, accelerators, derived)
    if status.is_true(context.status, ConditionType.VALIDATED):
        return Plan()
    new = context.writer.with_condition(context.status, ConditionType.VALIDATED, ConditionStatus.TRUE, Reason.VALID)
    message = "the spec is valid; jobs that were created before it begin first"
    return context.write(context.writer.summarised(new, State.PENDING, Reason.WAITING_FOR_TURN, message))
