"""Count containers that end before their pod is ready, and end a start that cannot succeed.

Without this, KubeRay replaces the pods until deadlines.startSeconds, while the NPUs are held. A job that has run before
proves its image: its starts are decided by the deadline alone.
"""

from __future__ import annotations

from datetime import datetime, timedelta

from rljob.api.status import ContainerFailure, FailureCause, RLJobStatus
from rljob.core import status, times
from rljob.core.attempts.classify import Failure
from rljob.core.attempts.container_failures import container_ends, described, hopeless, with_ends, worst
from rljob.core.attempts.start_advice import advice, injected_image
from rljob.core.attempts.start_diagnosis import StartReason
from rljob.core.context import Context
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import Plan
from rljob.core.reasons import Reason
from rljob.core.requirements import NOTHING, Requirements, starting_pods
from rljob.core.step import guarded, step
from rljob.core.transitions.conclusions import conclude
from rljob.core.transitions.conditions import report_not_ready
from rljob.core.watched import Watched
from rljob.render.raycluster import sidecar_names
from rljob_runtime.contract import ExitCode, Outcome


def _ends(seen: Watched) -> Requirements:
    pods = starting_pods(seen)
    return NOTHING if pods == NOTHING else pods | Requirements(pod_ends=True)


def _may_start_pods(seen: Watched) -> bool:
    # An admission by a queue is recorded first: the start counts from it.
    return seen.is_starting and not seen.is_held_back


@step(_ends, when=_may_start_pods)
def end_hopeless_start(context: Context) -> Plan | None:
    """Record ends of containers; conclude the start when every further pod would repeat one."""
    cluster, spec = guarded(context.cluster), context.frozen_spec
    if spec is None:
        return None
    pods, known = _pods(context), context.intent.container_failures
    since = max(context.could_begin(cluster), _begun(context))
    events, uid = context.observed.cluster_events, cluster["metadata"]["uid"]
    counted = with_ends(known, container_ends(pods, events, uid, since, context.now, sidecar_names(spec)))
    if counted == known:
        return None
    intent = context.intent.model_copy(update={"container_failures": counted})
    current = context.status.model_copy(update={"intent": intent})
    found = hopeless(counted, pods)
    if found is not None and not any(attempt.start_time for attempt in context.status.attempts):
        return _give_up(context, current, found)
    shown = worst(counted) or counted[-1]
    return report_not_ready(context, current, StartReason.CONTAINER_FAILED.value, described(shown), problem=True)


def _give_up(context: Context, current: RLJobStatus, found: ContainerFailure) -> Plan:
    message = f"{described(found)}; {advice(found, injected_image(context.cluster))}"
    reason, last = Reason.CONTAINER_CANNOT_START.value, status.last_step(current)
    outcome = Outcome(ExitCode.FAILED, reason, message, last_step=last)
    failure = Failure(
        cause=FailureCause.CONFIGURATION,
        reason=reason,
        message=message,
        exit_code=ExitCode.FAILED,
    )
    return conclude(context, current, outcome, failure)


def _begun(context: Context) -> datetime:
    seconds = context.intent.start_seconds or context.deadlines.start_seconds
    return times.from_text(context.intent.start_deadline) - timedelta(seconds=seconds)


def _pods(context: Context) -> tuple[Manifest, ...]:
    listed = () if isinstance(context.observed.pods, Unseen) else context.observed.pods
    head = () if context.observed.head_pod is None else (context.observed.head_pod,)
    return (*context.observed.ended_heads, *head, *listed)
