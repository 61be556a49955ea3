"""Evaluate checkpoints by RLJobs of their own, beside whatever else the job does, also after it has finished.

A row of `transitions.checkpoint_consumers`, whose child is an RLJob. A refused one is not tried again: the next
checkpoint is evaluated.
"""

from __future__ import annotations

from rljob.api.evaluation import EvaluatedStep, Evaluation, EvaluationState
from rljob.api.status import ConditionType, State
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import status, times
from rljob.core.context import Context
from rljob.core.observed import Manifest, Refusal
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.requirements import Requirements
from rljob.core.step import step
from rljob.core.transitions.checkpoint_consumers import EVALUATIONS, Decisions, advance, looks
from rljob.core.watched import Watched
from rljob.render.names import evaluation_name

MESSAGE_BYTES = 128


def _looks(seen: Watched) -> Requirements:
    """Require the snapshot if an evaluation may be due, and the RLJob of the one that runs."""
    entry = EVALUATIONS.under_way(seen.status)
    return looks(EVALUATIONS, seen, Requirements(evaluation_name=entry.name if entry is not None else None))


def _begin(context: Context, spec: RLJobSpec) -> Plan | None:
    evaluation = context.evaluation
    due = None if evaluation is None else _due(context, spec, evaluation)
    if due is None:
        return None
    entry = EvaluatedStep(
        step=due,
        name=evaluation_name(context.job, due),
        state=EvaluationState.RUNNING,
        started_time=times.to_text(context.now),
    )
    return context.write(EVALUATIONS.with_entry(context.status, entry))


def _due(context: Context, spec: RLJobSpec, evaluation: Evaluation) -> int | None:
    """Return the step to evaluate now; the newest checkpoint is the only one that counts."""
    saved, checkpoint = context.status.checkpoint, spec.checkpoint
    if saved is None or checkpoint is None or checkpoint.every_steps is None:
        return None
    # After a restart the same step may be trained and saved again.
    last = max((entry.step for entry in EVALUATIONS.of(context.status).steps), default=0)
    if saved.step <= last:
        return None
    finished = status.condition(context.status, ConditionType.FINISHED)
    if finished is not None and finished.reason == State.SUCCEEDED:
        return saved.step
    interval = checkpoint.every_steps * evaluation.every
    return saved.step if saved.step // interval > last // interval else None


def _refused(context: Context, entry: EvaluatedStep, refusal: Refusal) -> Plan:
    return _failed(context, entry, f"{Reason.RLJOB_REFUSED}: {refusal.why}")


def _follow(context: Context, entry: EvaluatedStep, found: Manifest) -> Plan | None:
    seen = status.read_status(found)
    finished = status.condition(seen, ConditionType.FINISHED)
    if seen.state is State.INVALID:
        return _failed(context, entry, f"RLJob {entry.name} is invalid: {seen.message or ''}")
    if finished is None or not status.is_true(seen, ConditionType.FINISHED):
        change = {"created": True, "message": seen.state.value}
        return context.write_change(EVALUATIONS.with_entry(context.status, entry.model_copy(update=change)))
    score = seen.progress.reward if seen.progress is not None else None
    if finished.reason != State.SUCCEEDED:
        return _failed(context, entry, f"RLJob {entry.name} is {finished.reason}: {seen.message or finished.message}")
    if score is None:
        return _failed(context, entry, f"RLJob {entry.name} succeeded without a score")
    over = {
        "state": EvaluationState.SUCCEEDED,
        "score": score,
        "message": None,
        "created": True,
        "finished_time": times.to_text(context.now),
    }
    note = EventNote(EventType.NORMAL, Reason.EVALUATED, f"step {entry.step} has a mean score of {score}")
    return context.write(EVALUATIONS.with_entry(context.status, entry.model_copy(update=over)), note)


def _failed(context: Context, entry: EvaluatedStep, why: str) -> Plan:
    over = {"state": EvaluationState.FAILED, "message": status.bounded(why, MESSAGE_BYTES)}
    new = entry.model_copy(update=over | {"finished_time": times.to_text(context.now)})
    note = EventNote(EventType.WARNING, Reason.EVALUATION_FAILED, status.bounded(f"step {entry.step}: {why}"))
    return context.write(EVALUATIONS.with_entry(context.status, new), note)


DECISIONS = Decisions(begin=_begin, refused=_refused, follow=_follow, failed=_failed)


@step(_looks)
def evaluate_checkpoints(context: Context) -> Plan | None:
    """Begin an evaluation that is due, or record how far the one under way is."""
    return advance(context, EVALUATIONS, DECISIONS)
