"""From the intent to submit to the end of the driver: submit once, follow the steps, notice the end and the losses."""

from __future__ import annotations

from datetime import datetime, timedelta

from rljob.api.lifecycle import Deadlines
from rljob.api.status import (
    Attempt,
    CheckpointStatus,
    Condition,
    ConditionStatus,
    ConditionType,
    Progress,
    RLJobStatus,
    State,
)
from rljob.core import status, times
from rljob.core.attempts.classify import is_killed
from rljob.core.attempts.job_summary import STALLED_STEPS
from rljob.core.attempts.sanitize import plausible
from rljob.core.attempts.usage import with_held_before
from rljob.core.context import LEAVING_POLL_SECONDS, Context, port_block
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import EventNote, EventType, Plan, SubmitJob
from rljob.core.reasons import Reason
from rljob.core.steps.driver_exit import await_last_word, close, outcome_seen
from rljob.core.steps.finishing import with_attempt
from rljob.core.steps.node_health import mind_nodes
from rljob.core.steps.ordering import order_stop
from rljob.core.steps.restarting import conclude, give_up
from rljob.render import labels
from rljob.render.ports import DASHBOARD_PORT
from rljob_runtime.contract import AttemptVariable, ExitCode, Outcome, Phase
from rljob_runtime.contract import Progress as Answer

SUBMIT_POLL_SECONDS = 2.0
SUBMIT_SECONDS_MIN = 60.0
"""A cluster that got ready in the last moment of startSeconds is asked for as long, or its NPUs came for nothing."""
POLL_SECONDS_MIN, POLL_SECONDS_MAX = 10.0, 60.0
"""Bounds of the exporter's polling: a tenth of a step."""
POLLS_PER_WRITE = 5
"""Looking more often than this would find steps that may not be written yet: only many jobs make it matter."""
DOOMED_SECONDS = 60.0
"""The deletion timestamp has the grace in it: a kubelet that runs kills at that moment."""
OVER = ("Failed", "Succeeded")
"""Phases of a pod whose containers have ended (restartPolicy Never)."""
SILENCE_TOLD_SECONDS = 300.0
"""A head that is busy for a few polls is no news; after five minutes of questions in vain, people should know."""


def find_lost_head(context: Context) -> Plan | None:
    """Give the attempt up when the pod that held the driver is gone: Ray's state, and the driver, died with it."""
    pod = context.observed.head_pod
    if pod is not None and pod["metadata"]["uid"] == context.intent.head_pod_uid:
        return _find_ended_head(context, pod)
    living = context.observed.pods
    # As for the cluster: a live list proves the loss.
    if isinstance(living, Unseen) or any(p["metadata"]["uid"] == context.intent.head_pod_uid for p in living):
        return Plan(requeue_after_seconds=SUBMIT_POLL_SECONDS)
    gone = "is gone" if pod is None else "was replaced"
    return give_up(
        context, Reason.HEAD_LOST, f"the head pod of {context.intent.cluster_name} {gone}, and the driver with it"
    )


def _find_ended_head(context: Context, pod: Manifest) -> Plan | None:
    """Give the attempt up when the pod is still there and what ran in it is not, or must end in any case.

    A pod whose node is off stays for as long as its Node object does, and one that has failed as long as KubeRay is
    away: every other NPU of the job would wait for it.
    """
    silent = isinstance(context.observed.progress, Unseen) and isinstance(context.observed.ray_job, Unseen)
    # What Ray said of an end counts for more than how the pod goes.
    if not silent or context.status.ending is not None:
        return None
    phase, ends = (pod.get("status") or {}).get("phase"), pod["metadata"].get("deletionTimestamp")
    if phase in OVER:
        seen = f"has ended ({phase})"
    elif ends is not None and context.now >= times.after(ends, DOOMED_SECONDS):
        seen = f"should be gone since {ends} and does not answer"
    else:
        return None
    return give_up(
        context, Reason.HEAD_LOST, f"the head pod of {context.intent.cluster_name} {seen}: the driver is lost"
    )


def submit(context: Context) -> Plan | None:
    """Submit the intended attempt to the intended pod: asked for before, so that it is never sent twice for nothing."""
    if context.attempt is not None:
        return None
    known, answer = context.observed.ray_job, progress_seen(context)
    if known is not None and not isinstance(known, Unseen):
        return None
    if answer is not None and answer.submission_id == context.intent.submission_id:
        # Its launcher answers: Ray has it.
        return None
    intended = times.from_text(context.intent.time)
    deadline = max(times.from_text(context.intent.start_deadline), intended + timedelta(seconds=SUBMIT_SECONDS_MIN))
    if isinstance(known, Unseen) and answer is None:
        # A lost answer may hide a run that goes on: it is given up as late as a run whose head is silent.
        deadline += timedelta(seconds=context.deadlines.progress_seconds)
    if context.now >= deadline:
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, "Ray's job API did not take the submission")
    if isinstance(known, Unseen):
        return _bear_rays_silence(context, intended)
    return Plan(effects=(_submission(context),), requeue_after_seconds=SUBMIT_POLL_SECONDS)


def _bear_rays_silence(context: Context, intended: datetime) -> Plan:
    """Ask on, and say so when it lasts; from then on the exporter is asked too."""
    if is_silent(context.status):
        return Plan(requeue_after_seconds=POLL_SECONDS_MIN)
    if context.now - intended < timedelta(seconds=SILENCE_TOLD_SECONDS):
        return Plan(requeue_after_seconds=SUBMIT_POLL_SECONDS)
    return _tell_silence(
        context, "Ray's job API in the head pod does not answer; whether it has the submission is not known"
    )


def _submission(context: Context) -> SubmitJob:
    pod, cluster, intent = context.observed.head_pod, context.cluster, context.intent
    if pod is None or cluster is None or intent.submission_id is None or intent.head_pod_uid is None:
        raise AssertionError("find_lost_head and find_lost_cluster let none of these pass")
    digest = cluster["metadata"].get("annotations", {}).get(labels.JOB_DIGEST, "")
    environment = {
        AttemptVariable.ATTEMPT: str(intent.attempt),
        AttemptVariable.SUBMISSION_ID: intent.submission_id,
        AttemptVariable.HEAD_POD_UID: intent.head_pod_uid,
        AttemptVariable.JOB_DIGEST: digest,
    }
    spec, saved = context.frozen_spec, context.status.checkpoint
    if saved is not None and spec is not None and spec.checkpoint is not None and saved.path == spec.checkpoint.path:
        environment[AttemptVariable.CHECKPOINT_STEP] = str(saved.step)
    block = port_block(pod)
    return SubmitJob(
        pod_ip=str(pod["status"]["podIP"]),
        pod_uid=intent.head_pod_uid,
        job_uid=context.job.uid,
        cluster_name=intent.cluster_name,
        submission_id=intent.submission_id,
        entrypoint=context.launcher.entrypoint,
        environment=tuple((name.value, value) for name, value in environment.items()),
        metadata=(("rljob", f"{context.job.namespace}/{context.job.name}"), ("job-uid", context.job.uid)),
        port=DASHBOARD_PORT if block is None else block.dashboard,
    )


def record_submission(context: Context) -> Plan | None:
    """Write down that Ray has the submission: from now on its absence is a loss."""
    if context.attempt is not None:
        return None
    intent = context.intent
    if intent.submission_id is None:
        raise AssertionError("intend_attempt sets the submission id")
    attempt = Attempt(
        number=intent.attempt,
        cluster_name=intent.cluster_name,
        submission_id=intent.submission_id,
        submitted_time=times.to_text(context.now),
    )
    new = context.status.model_copy(update={"attempts": with_attempt(context.status.attempts, attempt)})
    new = context.writer.with_condition(new, ConditionType.PROGRESSING, ConditionStatus.TRUE, Reason.SUBMITTED)
    new = context.writer.summarised(new, State.STARTING, Reason.SUBMITTED, "the driver is starting")
    told = f"Ray job {intent.submission_id} in RayCluster {intent.cluster_name}"
    return context.write(new, EventNote(EventType.NORMAL, Reason.SUBMITTED, told))


def find_dead_head(context: Context) -> Plan | None:
    """Give the attempt up when the kernel killed Ray on the head: KubeRay soon deletes the pod that tells why."""
    pod, answer = context.observed.head_pod, progress_seen(context)
    if (
        pod is None
        or not is_killed(pod)
        or context.status.ending is not None
        or outcome_seen(context, answer) is not None
    ):
        return None
    current = with_progress(context, answer)
    message = f"Ray on the head of {context.intent.cluster_name} was killed"
    outcome = Outcome(ExitCode.FAILED, Reason.HEAD_LOST, message, last_step=status.last_step(current))
    return conclude(context, current, outcome)


def follow(context: Context) -> Plan:
    """Take over steps, notice the end, hold the deadlines."""
    attempt = context.attempt
    if attempt is None:
        raise AssertionError("record_submission lets none pass")
    answer = progress_seen(context)
    if (outcome := outcome_seen(context, answer)) is not None:
        return close(context, with_progress(context, answer), outcome)
    if (plan := await_last_word(context)) is not None:
        return plan
    if context.observed.ray_job is None:
        return give_up(context, Reason.DRIVER_LOST, f"Ray no longer knows the submission {attempt.submission_id}")
    if (overdue := _overdue(context, attempt, answer)) is not None:
        return order_stop(context, *overdue)
    if (plan := mind_nodes(context)) is not None:
        return plan
    if answer is None:
        return _bear_silence(context)
    wait = _poll_seconds(context, answer)
    if _worth_writing(context, answer):
        return _write_progress(context, answer, wait)
    return Plan(requeue_after_seconds=wait)


def _bear_silence(context: Context) -> Plan:
    """Say that nothing is known; a run is given up only when all of its head is silent for as long as a step may take.

    The operator may have been away, or its way to the head may be blocked: neither is a reason to end a training run.
    """
    told = status.condition(context.status, ConditionType.PROGRESSING)
    if told is not None and told.reason == Reason.HEAD_SILENT:
        mute, limit = _mute_since(context, told), timedelta(seconds=context.deadlines.progress_seconds)
        if mute is not None and context.now >= mute + limit:
            return give_up(context, Reason.HEAD_SILENT, f"the head pod has not answered since {times.to_text(mute)}")
        return Plan(requeue_after_seconds=POLL_SECONDS_MIN)
    # Not since the last step: a step may take hours, and one question in vain in it would be told, and taken back.
    silence = context.observed.silence
    if silence is None or not _lasts(context, silence.since):
        return Plan(requeue_after_seconds=POLL_SECONDS_MIN)
    return _tell_silence(context, "the exporter in the head pod does not answer; the run may well go on")


def _mute_since(context: Context, told: Condition) -> datetime | None:
    """Give since when nothing of the head answers; None while Ray vouches for the run, or may in a moment."""
    silence = context.observed.silence
    if silence is None or silence.mute_since is None or not _lasts(context, silence.mute_since):
        return None
    # Where Ray answered while the exporter did not, only the silence of both counts. An operator that was away takes
    # the condition's word for the time before.
    vouched = silence.mute_since > silence.since
    return silence.mute_since if vouched else times.from_text(told.last_transition_time)


def _lasts(context: Context, since: datetime) -> bool:
    return context.now - since >= timedelta(seconds=SILENCE_TOLD_SECONDS)


def _tell_silence(context: Context, message: str) -> Plan:
    new = context.writer.with_condition(
        context.status, ConditionType.PROGRESSING, ConditionStatus.UNKNOWN, Reason.HEAD_SILENT, message
    )
    new = new.model_copy(update={"reason": Reason.HEAD_SILENT, "message": message})
    return context.write(new, EventNote(EventType.WARNING, Reason.HEAD_SILENT, message), requeue=POLL_SECONDS_MIN)


def progress_seen(context: Context) -> Answer | None:
    """Give what the exporter said, within bounds; None if it did not answer."""
    return None if isinstance(context.observed.progress, Unseen) else plausible(context.observed.progress, context.now)


def _overdue(context: Context, attempt: Attempt, answer: Answer | None) -> tuple[Reason, str] | None:
    deadlines, submitted = context.deadlines, times.from_text(attempt.submitted_time)
    before = timedelta(seconds=context.status.usage.attempt_seconds)
    if deadlines.active_seconds and context.now - submitted + before >= timedelta(seconds=deadlines.active_seconds):
        return Reason.ACTIVE_DEADLINE_EXCEEDED, f"deadlines.activeSeconds {deadlines.active_seconds} passed"
    if answer is None:
        return None
    written = times.from_text(observed) if (observed := _observed_time(context.status)) else submitted
    last = max(times.from_unix(answer.observed_time), written, submitted)
    limit, name = _patience(deadlines, answer)
    if context.now >= last + timedelta(seconds=limit):
        return Reason.PROGRESS_DEADLINE_EXCEEDED, f"no step since {times.to_text(last)}: {name} passed"
    return None


def _patience(deadlines: Deadlines, answer: Answer) -> tuple[float, str]:
    """Give how long no step may come, and what says so."""
    floor, start = deadlines.progress_seconds, deadlines.start_seconds
    if answer.phase is Phase.STARTING and start > floor:
        # Loading a model has little to do with the length of a step.
        return start, f"deadlines.startSeconds {start}"
    usual = STALLED_STEPS * (answer.median_step_seconds or answer.step_seconds or 0.0)
    if usual > floor:
        return usual, f"{STALLED_STEPS} times the usual step, {usual:.0f} s,"
    return floor, f"deadlines.progressSeconds {floor}"


def _observed_time(current: RLJobStatus) -> str | None:
    return current.progress.observed_time if current.progress else None


def _poll_seconds(context: Context, answer: Answer) -> float:
    if context.head_is_leaving:
        return LEAVING_POLL_SECONDS
    least = max(POLL_SECONDS_MIN, context.observed.progress_write_seconds / POLLS_PER_WRITE)
    return min(max((answer.step_seconds or 0.0) / 10, least), POLL_SECONDS_MAX)


def _worth_writing(context: Context, answer: Answer) -> bool:
    """Transitions at once, further steps and further saves at most every `progress_write_seconds` each."""
    old = context.status.progress
    if answer.step == 0:
        return is_silent(context.status)
    if old is None or old.observed_time is None or not _is_training(context):
        return True
    saved, told = _checkpoint(context, answer), context.status.checkpoint
    # A save that is not told is lost for the budget, and for what counts as kept, when the head is.
    if saved is not None and saved != told and (told is None or _may_be_told(context, told.saved_time)):
        return True
    if answer.step == old.step and saved == told:
        return False
    # Measured against now: a step that is followed by a long one must not stay unwritten until that one ends.
    return _may_be_told(context, old.observed_time) or answer.step == answer.total_steps


def _may_be_told(context: Context, last: str) -> bool:
    return (context.now - times.from_text(last)).total_seconds() >= context.observed.progress_write_seconds


def _is_training(context: Context) -> bool:
    progressing = status.condition(context.status, ConditionType.PROGRESSING)
    return progressing is not None and progressing.reason == Reason.TRAINING


def is_silent(current: RLJobStatus) -> bool:
    """Whether the last word was that the head does not answer."""
    progressing = status.condition(current, ConditionType.PROGRESSING)
    return progressing is not None and progressing.reason == Reason.HEAD_SILENT


def _write_progress(context: Context, answer: Answer, wait: float) -> Plan:
    new = with_progress(context, answer)
    message = f"step {answer.step}/{answer.total_steps}"
    # The condition tells of the transition only; a message with the step would make every step one.
    reason, state = (Reason.TRAINING, State.TRAINING) if answer.step else (Reason.SUBMITTED, State.STARTING)
    new = context.writer.with_condition(new, ConditionType.PROGRESSING, ConditionStatus.TRUE, reason)
    new = context.writer.summarised(new, state, reason)
    # The first step stands in the condition; an event takes back the warning of a silence.
    events = (EventNote(EventType.NORMAL, reason, f"seen again: {message}"),) if is_silent(context.status) else ()
    return context.write(new, *events, requeue=wait, rests=_may_rest(context))


def _may_rest(context: Context) -> bool:
    """Whether another look at once would only ask the head again for what it has just said.

    A head that is leaving soon says nothing more, and with a new save a run may be worth taking off a bad device.
    """
    return not context.head_is_leaving and not status.is_true(context.status, ConditionType.DEGRADED)


def with_progress(context: Context, answer: Answer | None) -> RLJobStatus:
    """Give the status with the exporter's figures."""
    # A run that only evaluates has a score and no step.
    if answer is None or (answer.step == 0 and answer.reward is None):
        return context.status
    return _with_checkpoint(context, _with_figures(context, answer), answer)


def _with_checkpoint(context: Context, current: RLJobStatus, answer: Answer) -> RLJobStatus:
    saved = _checkpoint(context, answer)
    if saved is None or saved == context.status.checkpoint:
        return current
    new = current.model_copy(update={"checkpoint": saved})
    # Which checkpoint it is stands in status.checkpoint: a message with the step would make every one a transition.
    return context.writer.with_condition(
        new, ConditionType.CHECKPOINTED, ConditionStatus.TRUE, Reason.CHECKPOINT_SAVED, saved.path
    )


def _checkpoint(context: Context, answer: Answer) -> CheckpointStatus | None:
    """Give the last checkpoint that is known: the exporter's, or an attempt's before this one."""
    spec, told = context.frozen_spec, context.status.checkpoint
    if answer.checkpoint_step is None or spec is None or spec.checkpoint is None:
        return told
    if told is not None and (told.step, told.path) == (answer.checkpoint_step, spec.checkpoint.path):
        return told
    return CheckpointStatus(
        step=answer.checkpoint_step,
        path=spec.checkpoint.path,
        saved_time=times.to_text(times.from_unix(answer.checkpoint_time or answer.observed_time)),
        seconds=status.metric(answer.checkpoint_seconds),
        bytes=answer.checkpoint_bytes,
    )


def _with_figures(context: Context, answer: Answer) -> RLJobStatus:
    remaining = (answer.total_steps - answer.step) * (answer.step_seconds or 0.0)
    observed = times.from_unix(answer.observed_time)
    progress = Progress(
        step=answer.step,
        total_steps=answer.total_steps,
        summary=f"{answer.step}/{answer.total_steps}",
        reward=status.metric(answer.reward),
        response_tokens_mean=status.metric(answer.response_tokens_mean),
        tokens_per_second_per_card=status.metric(answer.tokens_per_second_per_card),
        first_dp_idle_ratio=status.metric(answer.first_dp_idle_ratio),
        cluster_idle_ratio=status.metric(answer.cluster_idle_ratio),
        step_seconds=status.metric(answer.step_seconds),
        median_step_seconds=status.metric(answer.median_step_seconds),
        median_rollout_seconds=status.metric(answer.median_rollout_seconds),
        eta=times.to_text(observed + timedelta(seconds=remaining)) if answer.step < answer.total_steps else None,
        observed_time=times.to_text(observed),
    )
    attempt = context.attempt
    if attempt is None:
        raise AssertionError("nobody is asked for progress before the submission is recorded")
    told: dict[str, object] = {}
    if attempt.start_time is None and answer.start_time:
        told["start_time"] = times.to_text(times.from_unix(answer.start_time))
    if answer.resumed_from_step is not None:
        told["resumed_from_step"] = answer.resumed_from_step
    attempt = with_held_before(context.status.attempts, context.observed.held, context.resolved)
    attempts = [*context.status.attempts[:-1], attempt.model_copy(update=told)]
    return context.status.model_copy(update={"progress": progress, "attempts": attempts})
