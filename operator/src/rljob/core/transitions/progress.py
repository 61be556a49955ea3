"""Progress of the run in the status: the exporter's figures and the last checkpoint."""

from __future__ import annotations

from datetime import datetime, timedelta

from rljob.api.status import CheckpointStatus, ConditionStatus, ConditionType, Progress, RLJobStatus
from rljob.core import status, times
from rljob.core.attempts.recovery_time import TRAINING, recovery_of
from rljob.core.attempts.usage import with_held_before
from rljob.core.context import Context
from rljob.core.reasons import Reason
from rljob.core.transitions.conditions import healed
from rljob.core.transitions.start_stages import with_training
from rljob_runtime.contract import NOTES_MAX
from rljob_runtime.contract import Progress as Answer

REMAINING_SECONDS_MAX = 10 * 365 * 86_400.0
"""Ten years. The bounds of steps and step time allow more, up to times that no date can express."""


def with_progress(context: Context) -> RLJobStatus:
    """Return the status with the exporter's figures, if it answered."""
    answer = context.answer
    if answer is None:
        return context.status
    current = context.status.model_copy(update={"notes": [*context.status.notes, *new_notes(context, answer)]})
    current = with_replicas(context, _with_verl(current, answer), answer)
    # A run that only evaluates has a score and no step.
    if answer.step == 0 and answer.reward is None:
        return current
    return _with_checkpoint(context, _with_figures(context, current, answer), answer)


def _with_verl(current: RLJobStatus, answer: Answer) -> RLJobStatus:
    """Return the status with the verl that runs, which the image alone does not show if one is injected."""
    cluster = current.ray_cluster
    if cluster is None or not answer.verl_version:
        return current
    return current.model_copy(update={"ray_cluster": cluster.model_copy(update={"verl_version": answer.verl_version})})


def with_replicas(context: Context, current: RLJobStatus, answer: Answer) -> RLJobStatus:
    """Return the status with the condition RolloutDegraded, where trainer and rollout stand apart."""
    serving, wanted = answer.replicas_serving, answer.replicas_wanted
    if serving is None or wanted is None or serving >= wanted:
        return healed(context, current, ConditionType.ROLLOUT_DEGRADED)
    message = f"{serving} of {wanted} replicas generate; new ones join when their pods are back"
    return context.writer.with_changed(
        current, ConditionType.ROLLOUT_DEGRADED, ConditionStatus.TRUE, Reason.REPLICAS_LOST, message
    )


def new_notes(context: Context, answer: Answer) -> tuple[str, ...]:
    """Return what the run reports and the status does not contain yet; nothing if the status is full.

    A run that reports something else at each look must not cause a write and an event each time.
    """
    known = context.status.notes
    return tuple(note for note in answer.notes if note not in known)[: NOTES_MAX - len(known)]


def _with_checkpoint(context: Context, current: RLJobStatus, answer: Answer) -> RLJobStatus:
    saved = latest_checkpoint(context, answer)
    if saved is None or saved == context.status.checkpoint:
        return current
    new = current.model_copy(update={"checkpoint": saved})
    # The step is in status.checkpoint: in the message it would make every checkpoint a transition.
    return context.writer.with_condition(
        new, ConditionType.CHECKPOINTED, ConditionStatus.TRUE, Reason.CHECKPOINT_SAVED, saved.path
    )


def latest_checkpoint(context: Context, answer: Answer) -> CheckpointStatus | None:
    """Return the last known checkpoint: the one that the exporter reports, or that of an earlier attempt."""
    spec, latest = context.frozen_spec, context.status.checkpoint
    if answer.checkpoint_step is None or spec is None or spec.checkpoint is None:
        return latest
    if latest is not None and (latest.step, latest.path) == (answer.checkpoint_step, spec.checkpoint.path):
        return latest
    return CheckpointStatus(
        step=answer.checkpoint_step,
        path=spec.checkpoint.path,
        saved_time=times.to_text(times.from_unix(answer.checkpoint_time or answer.observed_time)),
        seconds=status.metric(answer.checkpoint_seconds),
        bytes=answer.checkpoint_bytes,
    )


def with_first_step(current: RLJobStatus, answer: Answer) -> RLJobStatus:
    """Return the status with the end of the start, and with what the attempt before has cost: it has made a step."""
    start = current.start
    if start is None or start.stage == TRAINING:
        return current
    pace = answer.median_step_seconds or answer.step_seconds or 0.0
    further = 0 if answer.first_step is None else max(answer.step - answer.first_step, 0)
    # Further ones may have been made since the last look, but not before the stage that was seen then.
    moment = times.to_text(times.from_unix(max((answer.step_time or answer.observed_time) - further * pace, 0.0)))
    since = max(moment, start.since)
    if current.attempts:
        last = current.attempts[-1]
        made = max((answer.first_step or 0) - last.resumed_from_step, 1)
        found = recovery_of(current.attempts, start.stages, since, pace, made)
        last = last.model_copy(update={"recovery": found})
        current = current.model_copy(update={"attempts": [*current.attempts[:-1], last]})
    return with_training(current, since)


def step_text(answer: Answer) -> str:
    """Return the step, and of how many; a command may not state that. An evaluation has no steps."""
    if answer.step == answer.total_steps == 0:
        return ""
    return str(answer.step) if answer.step > answer.total_steps else f"{answer.step}/{answer.total_steps}"


def _estimated_end(answer: Answer, observed: datetime) -> str | None:
    """Return when the last step ends at the pace of the attempt's steps, with saving and validation.

    None for a finished run, for an impossible time, and until the attempt has completed a step: before, it is unknown
    what a step takes.
    """
    pace = answer.median_step_seconds or answer.step_seconds
    remaining = (answer.total_steps - answer.step) * (pace or 0.0)
    if not pace or answer.step >= answer.total_steps or remaining > REMAINING_SECONDS_MAX:
        return None
    return times.to_text(observed + timedelta(seconds=remaining))


def _with_figures(context: Context, current: RLJobStatus, answer: Answer) -> RLJobStatus:
    observed = times.from_unix(answer.step_time or answer.observed_time)
    progress = Progress(
        step=answer.step,
        total_steps=answer.total_steps,
        summary=step_text(answer),
        reward=status.metric(answer.reward),
        response_tokens_mean=status.metric(answer.response_tokens_mean),
        tokens_per_second_per_card=status.metric(answer.tokens_per_second_per_card),
        first_dp_idle_ratio=status.metric(answer.first_dp_idle_ratio),
        cluster_idle_ratio=status.metric(answer.cluster_idle_ratio),
        step_seconds=status.metric(answer.step_seconds),
        median_step_seconds=status.metric(answer.median_step_seconds),
        record_seconds=status.metric(answer.record_seconds),
        median_rollout_seconds=status.metric(answer.median_rollout_seconds),
        save_every_steps=answer.save_every_steps,
        eta=_estimated_end(answer, observed),
        observed_time=times.to_text(observed),
    )
    attempt = context.attempt
    if attempt is None:
        raise AssertionError("progress was asked for before the submission was recorded")
    change: dict[str, object] = {}
    if attempt.start_time is None and answer.start_time:
        change["start_time"] = times.to_text(times.from_unix(answer.start_time))
    if answer.resumed_from_step is not None:
        change["resumed_from_step"] = answer.resumed_from_step
    attempt = with_held_before(context.status.attempts, context.observed.held, context.resolved, context.worker_sizes)
    attempts = [*context.status.attempts[:-1], attempt.model_copy(update=change)]
    return current.model_copy(update={"progress": progress, "attempts": attempts})
