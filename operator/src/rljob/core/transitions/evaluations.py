"""Evaluations in the status: which one is under way, and how entries are written."""

from __future__ import annotations

from rljob.api.evaluation import EvaluatedStep, EvaluationState, EvaluationStatus
from rljob.api.status import RLJobStatus
from rljob.core.observed import Refusal
from rljob.core.plan import Plan

POLL_SECONDS = 15.0
"""Between two looks at an evaluation's RLJob, which is in the store and takes minutes."""
KEPT = 16
"""Entries of status.evaluation.steps."""


def of(current: RLJobStatus) -> EvaluationStatus:
    """Return what is recorded of evaluations."""
    return current.evaluation or EvaluationStatus()


def under_way(current: RLJobStatus) -> EvaluatedStep | None:
    """Return the evaluation that has not ended; there is at most one."""
    return next((entry for entry in of(current).steps if entry.state is EvaluationState.RUNNING), None)


def with_entry(current: RLJobStatus, entry: EvaluatedStep) -> RLJobStatus:
    """Return the status with an entry added, or replaced in its place."""
    told = of(current).steps
    known = any(each.name == entry.name for each in told)
    steps = [entry if each.name == entry.name else each for each in told] if known else [*told, entry]
    return current.model_copy(update={"evaluation": EvaluationStatus(steps=steps[-KEPT:])})


def is_of_an_evaluation(current: RLJobStatus, refusal: Refusal) -> bool:
    """Report whether a child that cannot be created is an evaluation, which never ends the job."""
    return refusal.kind == "RLJob" and any(entry.name == refusal.name for entry in of(current).steps)


def paced(current: RLJobStatus, plan: Plan) -> Plan:
    """Return a plan that waits no longer than until the next look at an evaluation."""
    return plan if under_way(current) is None else plan.waiting_at_most(POLL_SECONDS)
