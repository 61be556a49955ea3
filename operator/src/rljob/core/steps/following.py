"""From the submission to the end of the driver: record its steps, hold its deadlines, notice losses."""

from __future__ import annotations

from datetime import datetime, timedelta

from rljob.api.lifecycle import Deadlines
from rljob.api.status import Attempt, Condition, ConditionStatus, ConditionType, RLJobStatus, State
from rljob.core import start_message, status, times
from rljob.core.attempts.classify import is_killed
from rljob.core.attempts.lost_workers import are_all_seen, lost_workers
from rljob.core.context import Context
from rljob.core.manifest_facts import counted_workers, wanted_workers
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.polling import (
    HEAD_POLL_SECONDS_MAX,
    HEAD_POLL_SECONDS_MIN,
    LEAVING_POLL_SECONDS,
    POD_POLL_SECONDS_MIN,
    SILENCE_REPORTED_SECONDS,
    SUBMIT_POLL_SECONDS,
    start_write_seconds,
)
from rljob.core.reasons import Reason
from rljob.core.requirements import STOPS_HERE, Pods, Requirements, cluster_pods, intended_head
from rljob.core.spec.model_shape import checkpoint_size
from rljob.core.step import guarded, step
from rljob.core.transitions.conclusions import conclude, give_up
from rljob.core.transitions.conditions import report_silence
from rljob.core.transitions.progress import (
    latest_checkpoint,
    new_notes,
    step_text,
    with_first_step,
    with_progress,
    with_replicas,
)
from rljob.core.transitions.reported_end import outcome_seen
from rljob.core.transitions.start_stages import is_further, with_reported
from rljob.core.transitions.stop_order import order_stop
from rljob.core.watched import Watched
from rljob_runtime.contract import ExitCode, Outcome, Phase, StartStage
from rljob_runtime.contract import Progress as Answer

POLLS_PER_WRITE = 5
"""More frequent polls would find steps that may not be written yet; it matters only with many jobs."""
STALLED_STEPS = 3
"""A progress deadline below the length of a step would end every run."""
DOOMED_SECONDS = 60.0
"""The deletion timestamp includes the grace period: a running kubelet kills the pod at that moment."""
LOADING_STAGES = frozenset(
    {
        *(StartStage.STARTING_RANKS, StartStage.LOADING_CRITIC, StartStage.LOADING_MODEL),
        *(StartStage.STARTING_REPLICAS, StartStage.LOADING_CHECKPOINT, StartStage.SENDING_WEIGHTS),
    }
)
LOADED_BYTES_PER_SECOND = 100e6
"""Of the whole job: a tenth of what one client of a slow volume reads."""
PROGRESSING = ConditionType.PROGRESSING
OVER = ("Failed", "Succeeded")
"""Phases of a pod whose containers have ended (restartPolicy Never)."""


def _living_head(seen: Watched) -> Requirements:
    return intended_head(seen) if seen.head_is_intended else intended_head(seen) | STOPS_HERE


@step(_living_head)
def find_lost_head(context: Context) -> Plan | None:
    """Give up the attempt when the pod that held the driver is gone: Ray's state, and the driver, died with it."""
    pod = context.observed.head_pod
    if pod is not None and context.is_intended_head(pod):
        return _find_ended_head(context, pod)
    living = context.observed.pods
    # As for the cluster, only a live LIST proves a loss.
    if isinstance(living, Unseen) or any(map(context.is_intended_head, living)):
        return Plan(requeue_after_seconds=SUBMIT_POLL_SECONDS)
    gone = "is gone" if pod is None else "was replaced"
    return give_up(
        context, Reason.HEAD_LOST, f"the head pod of {context.intent.cluster_name} {gone}, and the driver with it"
    )


def _find_ended_head(context: Context, pod: Manifest) -> Plan | None:
    """Give up the attempt when the pod exists but its containers have ended, or must have by now.

    A pod on a node that is off stays as long as its Node object, and one that failed stays as long as KubeRay is away:
    every other NPU of the job would wait for it.
    """
    silent = isinstance(context.observed.progress, Unseen) and isinstance(context.observed.ray_job, Unseen)
    # Ray's report of an end counts for more than how the pod ends.
    if not silent or context.status.ending is not None:
        return None
    phase, ends = (pod.get("status") or {}).get("phase"), pod["metadata"].get("deletionTimestamp")
    if phase in OVER:
        seen = f"has ended ({phase})"
    elif ends is not None and context.now >= times.after(ends, DOOMED_SECONDS):
        seen = f"should have terminated by {ends} and does not answer"
    else:
        return None
    return give_up(
        context, Reason.HEAD_LOST, f"the head pod of {context.intent.cluster_name} {seen}: the driver is lost"
    )


@step(intended_head)
def find_killed_ray(context: Context) -> Plan | None:
    """Give up the attempt when the kernel killed Ray on the head, before KubeRay deletes the pod that shows why."""
    pod = context.observed.head_pod
    if pod is None or not is_killed(pod) or context.status.ending is not None or outcome_seen(context) is not None:
        return None
    current = with_progress(context)
    message = f"Ray on the head of {context.intent.cluster_name} was killed"
    outcome = Outcome(ExitCode.FAILED, Reason.HEAD_LOST, message, last_step=status.last_step(current))
    return conclude(context, current, outcome)


@step(intended_head)
def find_lost_driver(context: Context) -> Plan | None:
    """Give up the attempt when Ray has forgotten the submission."""
    if context.observed.ray_job is not None:
        return None
    return give_up(context, Reason.DRIVER_LOST, f"Ray no longer knows the submission {_attempt(context).submission_id}")


def _lacks_workers(seen: Watched) -> bool:
    """Report whether KubeRay counts too few workers of a run."""
    cluster, attempt = seen.cluster, seen.open_attempt
    return cluster is not None and attempt is not None and counted_workers(cluster) < wanted_workers(cluster)


def _workers(seen: Watched) -> Requirements:
    return Requirements(pods=Pods(cluster_pods(seen), every_seconds=POD_POLL_SECONDS_MIN))


@step(_workers, when=_lacks_workers)
def find_lost_workers(context: Context) -> Plan | None:
    """End a run whose worker pods are gone, before Ray believes it: no step can be completed without them.

    Ray takes a node for dead after five missed checks, and the trainer may wait for ever.
    """
    pods, cluster, spec = context.observed.pods, guarded(context.cluster), context.frozen_spec
    if isinstance(pods, Unseen) or spec is None or context.status.ending is not None or not are_all_seen(cluster):
        return None
    lost = lost_workers(cluster, pods, spec)
    if not lost:
        return None
    held = () if isinstance(context.observed.held, Unseen) else context.observed.held
    living = {str((pod.get("spec") or {}).get("nodeName")) for pod in pods}
    nodes = tuple(sorted({place.node for place in held if place.works} - living))
    place = f" on {', '.join(nodes)}" if nodes else ""
    pods_lost, verb, them = ("1 worker pod", "is", "it") if lost == 1 else (f"{lost} worker pods", "are", "them")
    message = f"{pods_lost} of {context.intent.cluster_name}{place} {verb} gone; the run cannot continue without {them}"
    return order_stop(context, Reason.WORKER_LOST, message, nodes=nodes, current=with_progress(context))


@step(intended_head)
def hold_deadlines(context: Context) -> Plan | None:
    """Stop a run that exceeds deadlines.activeSeconds or deadlines.progressSeconds."""
    overdue = _overdue(context, _attempt(context), context.answer)
    return None if overdue is None else order_stop(context, *overdue)


@step(intended_head)
def follow(context: Context) -> Plan:
    """Record the steps of a run, and the silence of its head."""
    answer = context.answer
    if answer is None:
        return _await_answer(context)
    wait = _poll_seconds(context, answer)
    if _worth_writing(context, answer):
        return _write_progress(context, answer, wait)
    return Plan(requeue_after_seconds=wait)


def _attempt(context: Context) -> Attempt:
    if context.attempt is None:
        raise AssertionError("record_submission lets none pass")
    return context.attempt


def _await_answer(context: Context) -> Plan:
    """Report a silent head; give the run up only when all of it is silent for as long as a step may take.

    The operator may have been away, or its network path to the head may be blocked: neither justifies ending a
    training run.
    """
    condition = status.condition(context.status, PROGRESSING)
    if condition is not None and condition.reason == Reason.HEAD_SILENT:
        mute, limit = _mute_since(context, condition), timedelta(seconds=context.deadlines.progress_seconds)
        if mute is not None and context.now >= mute + limit:
            return give_up(context, Reason.HEAD_SILENT, f"the head pod has not answered since {times.to_text(mute)}")
        return Plan(requeue_after_seconds=HEAD_POLL_SECONDS_MIN)
    # Not counted from the last step: a step may take hours, and one unanswered request in it would be reported.
    silence = context.observed.silence
    if silence is None or not _lasts(context, silence.since):
        return Plan(requeue_after_seconds=HEAD_POLL_SECONDS_MIN)
    return report_silence(context, "the exporter in the head pod does not answer; the run may still be alive")


def _mute_since(context: Context, condition: Condition) -> datetime | None:
    """Return since when neither exporter nor Ray answers; None while Ray answers, or may answer in a moment."""
    silence = context.observed.silence
    if silence is None or silence.mute_since is None or not _lasts(context, silence.mute_since):
        return None
    # If Ray answered while the exporter did not, only the silence of both counts. For the time before the operator was
    # restarted, the condition's transition time counts.
    vouched = silence.mute_since > silence.since
    return silence.mute_since if vouched else times.from_text(condition.last_transition_time)


def _lasts(context: Context, since: datetime) -> bool:
    return context.now - since >= timedelta(seconds=SILENCE_REPORTED_SECONDS)


def _overdue(context: Context, attempt: Attempt, answer: Answer | None) -> tuple[Reason, str] | None:
    deadlines, submitted = context.deadlines, times.from_text(attempt.submitted_time)
    before = timedelta(seconds=context.status.usage.attempt_seconds)
    if deadlines.active_seconds and context.now - submitted + before >= timedelta(seconds=deadlines.active_seconds):
        return Reason.ACTIVE_DEADLINE_EXCEEDED, f"deadlines.activeSeconds {deadlines.active_seconds} passed"
    if answer is None:
        return None
    written = times.from_text(observed) if (observed := _observed_time(context.status)) else submitted
    if context.frozen_spec is not None and not context.frozen_spec.reports_steps:
        return None
    last = max(times.from_unix(answer.observed_time), written, submitted)
    if (overdue := _loading_is_overdue(context, answer, submitted)) is not None:
        return Reason.PROGRESS_DEADLINE_EXCEEDED, overdue
    limit, name = _patience(deadlines, answer)
    if context.now >= last + timedelta(seconds=limit):
        return Reason.PROGRESS_DEADLINE_EXCEEDED, f"no step since {times.to_text(last)}: {name} passed"
    return None


def _loading_is_overdue(context: Context, answer: Answer, submitted: datetime) -> str | None:
    """Return why a stage of the start ends the run although nobody has set a deadline for steps.

    The default of four hours is that of a step. Loading a model takes as long as its bytes, and a start that hangs
    holds every NPU of the job.
    """
    start, deadlines = answer.start, context.deadlines
    if start is None or start.stage not in LOADING_STAGES or "progress_seconds" in deadlines.model_fields_set:
        return None
    size = None if context.frozen_spec is None else checkpoint_size(context.frozen_spec)
    if size is None:
        return None
    limit = deadlines.start_seconds + size / LOADED_BYTES_PER_SECOND
    begun = max(times.from_unix(start.begun), submitted)  # by the clock of another node
    if limit >= deadlines.progress_seconds or context.now < begun + timedelta(seconds=limit):
        return None
    words = start_message.words(start.stage, start_message.detail(start))
    return (
        f"{words} since {times.to_text(begun)}: {limit:.0f} s, deadlines.startSeconds and the time for "
        f"{size / 1e9:.0f} GB, passed; deadlines.progressSeconds sets a limit of your own"
    )


def _patience(deadlines: Deadlines, answer: Answer) -> tuple[float, str]:
    """Return how long a run may be without a step, and the name of that limit."""
    floor, start = deadlines.progress_seconds, deadlines.start_seconds
    if answer.phase is Phase.STARTING and start > floor:
        # The time to load a model is unrelated to the length of a step.
        return start, f"deadlines.startSeconds {start}"
    usual = STALLED_STEPS * (answer.record_seconds or answer.median_step_seconds or answer.step_seconds or 0.0)
    if usual > floor:
        what = "step" if answer.record_seconds is None else "time between two reports"
        return usual, f"{STALLED_STEPS} times the usual {what}, {usual:.0f} s,"
    return floor, f"deadlines.progressSeconds {floor}"


def _observed_time(current: RLJobStatus) -> str | None:
    return current.progress.observed_time if current.progress else None


def _poll_seconds(context: Context, answer: Answer) -> float:
    if context.head_is_leaving:
        return LEAVING_POLL_SECONDS
    least = max(HEAD_POLL_SECONDS_MIN, context.observed.progress_write_seconds / POLLS_PER_WRITE)
    return min(max((answer.step_seconds or 0.0) / 10, least), HEAD_POLL_SECONDS_MAX)


def _worth_writing(context: Context, answer: Answer) -> bool:
    """Report whether to write: transitions at once, steps, checkpoints and stages of a start at their intervals."""
    old = context.status.progress
    if new_notes(context, answer) or with_replicas(context, context.status, answer) != context.status:
        return True
    if not _trains(answer):
        return status.is_silent(context.status) or _is_further(context, answer)
    if old is None or old.observed_time is None or not _is_training(context):
        return True
    saved, known = latest_checkpoint(context, answer), context.status.checkpoint
    # A checkpoint that is not recorded is lost for the budget, and for usage, if the head is lost.
    if saved is not None and saved != known and (known is None or _may_be_written(context, known.saved_time)):
        return True
    if answer.step == old.step and saved == known:
        return False
    # Measured against now: a step that is followed by a long one must not stay unwritten until that one ends.
    return _may_be_written(context, old.observed_time) or answer.step == answer.total_steps


def _trains(answer: Answer) -> bool:
    """Report whether the attempt has made a step; while it starts, it reports the step that it resumes from."""
    return answer.step > 0 and answer.phase is not Phase.STARTING


def _is_further(context: Context, answer: Answer) -> bool:
    """Report whether the start does something else than the status says, and may be reported again."""
    if not is_further(context.status, answer.start):
        return False
    last = context.status.start.observed_time if context.status.start else None
    interval = start_write_seconds(context.observed.progress_write_seconds)
    return last is None or context.now >= times.after(last, interval)


def _may_be_written(context: Context, last: str) -> bool:
    return (context.now - times.from_text(last)).total_seconds() >= context.observed.progress_write_seconds


def _is_training(context: Context) -> bool:
    progressing = status.condition(context.status, PROGRESSING)
    return progressing is not None and progressing.reason == Reason.TRAINING


def _write_progress(context: Context, answer: Answer, wait: float) -> Plan:
    new = with_progress(context)
    message = f"step {step_text(answer)}"
    # The condition reports the transition only; a message with the step would make every step one.
    trains = _trains(answer)
    reason, state = (Reason.TRAINING, State.TRAINING) if trains else (Reason.SUBMITTED, State.STARTING)
    start = None if trains else answer.start
    start_text = "" if start is None else start_message.message(start, context.now)
    new = with_first_step(new, answer) if trains else with_reported(new, start, context.now)
    new = context.writer.with_condition(new, PROGRESSING, ConditionStatus.TRUE, reason, start_text)
    new = context.writer.summarised(new, state, reason, start_text)
    # The first step is in the condition; an event only follows the warning about a silent head.
    events = [EventNote(EventType.WARNING, Reason.RUN_WARNING, note) for note in new_notes(context, answer)]
    if status.is_silent(context.status):
        events.append(EventNote(EventType.NORMAL, reason, f"the head answers again: {message}"))
    return context.write(new, *events, requeue=wait, rests=_may_rest(context))


def _may_rest(context: Context) -> bool:
    """Report whether the next look can wait: one at once would only ask the head again for the same answer.

    A head that is being deleted soon says nothing more, and after a new checkpoint a run may be worth stopping on a
    degraded device.
    """
    return not context.head_is_leaving and not status.is_true(context.status, ConditionType.DEGRADED)
