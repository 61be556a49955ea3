"""Evaluate checkpoints by RLJobs of their own, beside whatever else the job does, also after it has finished.

One evaluation at a time: a decision is written first, then its RLJob is created, and its end is recorded. Nothing here
waits or ends the job: an evaluation that is refused or fails is an entry in status.evaluation and an event.
"""

from __future__ import annotations

from rljob.api.evaluation import EvaluatedStep, Evaluation, EvaluationState
from rljob.api.status import ConditionType, State
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import status, times
from rljob.core.context import Context
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import CreateObject, EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.requirements import NOTHING, Requirements
from rljob.core.spec.model_shape import conversion_memory
from rljob.core.step import step
from rljob.core.transitions import evaluations
from rljob.core.watched import Watched
from rljob.render.evaluation import build_evaluation
from rljob.render.names import evaluation_name

MESSAGE_BYTES = 128


def _looks(seen: Watched) -> Requirements:
    """Require the snapshot if an evaluation may be due, and the RLJob of the one that runs."""
    if not seen.began:
        return NOTHING
    entry = evaluations.under_way(seen.status)
    if entry is None and not _may_be_due(seen):
        return NOTHING
    return Requirements(
        snapshot_name=seen.resolved.snapshot_name, evaluation_name=entry.name if entry is not None else None
    )


def _may_be_due(seen: Watched) -> bool:
    """Report whether the spec may ask for an evaluation; a recipe may have the field."""
    stated = bool(seen.raw_spec.get("evaluation")) or bool(seen.raw_spec.get("recipeRef"))
    return stated and seen.status.checkpoint is not None


@step(_looks)
def evaluate_checkpoints(context: Context) -> Plan | None:
    """Begin an evaluation that is due, or record how far the one under way is."""
    spec = context.frozen_spec if context.began else None
    if spec is None:
        return None
    entry = evaluations.under_way(context.status)
    if entry is None:
        return _begin(context, spec)
    refusal = next((r for r in context.observed.refusals if (r.kind, r.name) == ("RLJob", entry.name)), None)
    if refusal is not None:
        return _failed(context, entry, f"{Reason.RLJOB_REFUSED}: {refusal.why}")
    found = context.observed.evaluation
    if isinstance(found, Unseen):
        return None
    if found is None:
        return _create(context, spec, entry)
    if not context.made(found):
        return _failed(context, entry, f"RLJob {entry.name} was not created by this operator; delete it")
    return _follow(context, entry, found)


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
    return context.write(evaluations.with_entry(context.status, entry))


def _due(context: Context, spec: RLJobSpec, evaluation: Evaluation) -> int | None:
    """Return the step to evaluate now; the newest checkpoint is the only one that counts."""
    saved, checkpoint = context.status.checkpoint, spec.checkpoint
    if saved is None or checkpoint is None:
        return None
    # After a restart the same step may be trained and saved again.
    last = max((entry.step for entry in evaluations.of(context.status).steps), default=0)
    if saved.step <= last:
        return None
    finished = status.condition(context.status, ConditionType.FINISHED)
    if finished is not None and finished.reason == State.SUCCEEDED:
        return saved.step
    interval = checkpoint.every_steps * evaluation.every
    return saved.step if saved.step // interval > last // interval else None


def _create(context: Context, spec: RLJobSpec, entry: EvaluatedStep) -> Plan:
    if entry.created:
        return _failed(context, entry, f"RLJob {entry.name} was deleted")
    evaluation = context.evaluation
    if evaluation is None or spec.checkpoint is None:
        return _failed(context, entry, "spec.evaluation was removed")
    saved = context.status.checkpoint
    memory = conversion_memory(spec, saved.bytes if saved is not None else None)
    manifest = build_evaluation(context.job, spec, evaluation, entry.name, entry.step, memory)
    return Plan(effects=(CreateObject(manifest),))


def _follow(context: Context, entry: EvaluatedStep, found: Manifest) -> Plan | None:
    seen = status.read_status(found)
    finished = status.condition(seen, ConditionType.FINISHED)
    if seen.state is State.INVALID:
        return _failed(context, entry, f"RLJob {entry.name} is invalid: {seen.message or ''}")
    if finished is None or not status.is_true(seen, ConditionType.FINISHED):
        told = {"created": True, "message": seen.state.value}
        return context.write_change(evaluations.with_entry(context.status, entry.model_copy(update=told)))
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
    return context.write(evaluations.with_entry(context.status, entry.model_copy(update=over)), note)


def _failed(context: Context, entry: EvaluatedStep, why: str) -> Plan:
    over = {"state": EvaluationState.FAILED, "message": status.bounded(why, MESSAGE_BYTES)}
    new = entry.model_copy(update=over | {"finished_time": times.to_text(context.now)})
    note = EventNote(EventType.WARNING, Reason.EVALUATION_FAILED, status.bounded(f"step {entry.step}: {why}"))
    return context.write(evaluations.with_entry(context.status, new), note)
