"""Submit the intended attempt to Ray once, and record that Ray has it."""

from __future__ import annotations

from datetime import datetime, timedelta

from rljob.api.status import Attempt, ConditionStatus, ConditionType, State
from rljob.core import status, times
from rljob.core.context import Context
from rljob.core.observed import Unseen
from rljob.core.plan import EventNote, EventType, Plan, SubmitJob
from rljob.core.polling import HEAD_POLL_SECONDS_MIN, SILENCE_REPORTED_SECONDS, SUBMIT_POLL_SECONDS
from rljob.core.reasons import Reason
from rljob.core.requirements import STOPS_HERE, head_ports, intended_head
from rljob.core.step import step
from rljob.core.transitions.attempts import with_attempt
from rljob.core.transitions.conclusions import give_up
from rljob.core.transitions.conditions import report_silence
from rljob.core.watched import Watched
from rljob.render import labels
from rljob.render.ports import DASHBOARD_PORT
from rljob_runtime.contract import AttemptVariable

ENTRYPOINT = "python -m rljob_runtime launch"
"""What Ray runs on the head for every attempt, whatever trains."""
SUBMIT_SECONDS_MIN = 60.0
"""A cluster that became ready just before startSeconds passed gets this time, or its NPUs were held for nothing."""


def _is_unrecorded(seen: Watched) -> bool:
    return seen.attempt is None


@step(intended_head, when=_is_unrecorded)
def submit(context: Context) -> Plan | None:
    """Submit the intended attempt to the intended pod, unless Ray or the exporter already knows it."""
    known, answer = context.observed.ray_job, context.answer
    if known is not None and not isinstance(known, Unseen):
        return None
    if answer is not None and answer.submission_id == context.intent.submission_id:
        # Its launcher answers, so Ray has it.
        return None
    intended = times.from_text(context.intent.time)
    deadline = max(times.from_text(context.intent.start_deadline), intended + timedelta(seconds=SUBMIT_SECONDS_MIN))
    if isinstance(known, Unseen) and answer is None:
        # The run may be alive although the answer was lost, so it gets as much time as a run whose head is silent.
        deadline += timedelta(seconds=context.deadlines.progress_seconds)
    if context.now >= deadline:
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, "Ray's job API did not accept the submission")
    if isinstance(known, Unseen):
        return _await_ray(context, intended)
    return Plan(effects=(_submission(context),), requeue_after_seconds=SUBMIT_POLL_SECONDS)


def _await_ray(context: Context, intended: datetime) -> Plan:
    """Ask again, and report a long silence; from then on the exporter is asked as well."""
    if status.is_silent(context.status):
        return Plan(requeue_after_seconds=HEAD_POLL_SECONDS_MIN)
    if context.now - intended < timedelta(seconds=SILENCE_REPORTED_SECONDS):
        return Plan(requeue_after_seconds=SUBMIT_POLL_SECONDS)
    return report_silence(
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
    if spec is not None and spec.auto_saves:
        failed = context.status.counters.user_failures + context.status.counters.infrastructure_failures
        environment |= {
            AttemptVariable.LOSSES: str(failed),
            AttemptVariable.HELD_DEVICE_SECONDS: str(context.status.usage.device_seconds),
        }
    return SubmitJob(
        pod_ip=str(pod["status"]["podIP"]),
        pod_uid=intent.head_pod_uid,
        job_uid=context.job.uid,
        cluster_name=intent.cluster_name,
        submission_id=intent.submission_id,
        entrypoint=ENTRYPOINT,
        environment=tuple((name.value, value) for name, value in environment.items()),
        metadata=(("rljob", f"{context.job.namespace}/{context.job.name}"), ("job-uid", context.job.uid)),
        port=head_ports(pod).get("dashboard_port", DASHBOARD_PORT),
        may_be_open=spec is not None and bool(spec.runtime.unauthenticated_ray),
    )


@step(STOPS_HERE, when=_is_unrecorded)
def record_submission(context: Context) -> Plan:
    """Record that Ray has the submission: from now on its absence is a loss."""
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
    message = f"Ray job {intent.submission_id} in RayCluster {intent.cluster_name}"
    return context.write(new, EventNote(EventType.NORMAL, Reason.SUBMITTED, message))
