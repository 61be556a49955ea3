"""Create and delete children of a job. A refusal that may pass is reported, and the creation is tried again.

A quota is freed and a policy is corrected, so a refused child is requested again, with the queue's backoff, until the
start deadline. An invalid manifest or a taken name does not change: those end the job (`finishing.give_up_refused`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rljob.api.status import Condition, ConditionStatus, ConditionType, State
from rljob.core import status
from rljob.core.context import Context
from rljob.core.observed import Manifest, Refusal, RefusalCause
from rljob.core.plan import CreateObject, CreateToken, DeleteObject, EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.transitions.conclusions import give_up

Creation = CreateObject | CreateToken

REFUSED: Mapping[str, Reason] = {
    "ConfigMap": Reason.CONFIG_MAP_REFUSED,
    "Secret": Reason.SECRET_REFUSED,
    "Job": Reason.JOB_REFUSED,
    "PodGroup": Reason.POD_GROUP_REFUSED,
    "NetworkPolicy": Reason.NETWORK_POLICY_REFUSED,
    "Service": Reason.SERVICE_REFUSED,
    "Deployment": Reason.DEPLOYMENT_REFUSED,
    "RayCluster": Reason.RAY_CLUSTER_REFUSED,
    "RLJob": Reason.RLJOB_REFUSED,
}
"""Why a job waits, by the kind of the child that was refused."""


def create(context: Context, *children: Creation) -> Plan:
    """Create children, after reporting that one of them was refused."""
    return report_refused(context, *children) or Plan(effects=still_to_create(context, *children))


def still_to_create(context: Context, *children: Creation) -> tuple[Creation, ...]:
    """Return the child that was refused and those after it: those before it exist.

    A quota that is used up also refuses names that exist, so those would hide what is missing.
    """
    denied = {(refusal.kind, refusal.name) for refusal in _denied(context)}
    first = next((index for index, child in enumerate(children) if _name(child) in denied), 0)
    return children[first:]


def report_refused(context: Context, *children: Creation) -> Plan | None:
    """Report that one of these children was refused, or give up at the start deadline; None if it is reported."""
    wanted = {_name(child) for child in children}
    refusal = next((refusal for refusal in _denied(context) if (refusal.kind, refusal.name) in wanted), None)
    return None if refusal is None else _report(context, refusal)


def _denied(context: Context) -> Iterator[Refusal]:
    return (refusal for refusal in context.observed.refusals if refusal.cause is RefusalCause.DENIED)


def reports_another(context: Context, *children: Creation) -> bool:
    """Report whether the condition is about a child of another kind that was refused, and exists by now."""
    reported = _reported(context)
    return reported is not None and reported not in {REFUSED[child.manifest["kind"]] for child in children}


def _report(context: Context, refusal: Refusal) -> Plan | None:
    reason, (kind, state) = REFUSED[refusal.kind], _place(context)
    message = _first_words(status.condition(context.status, kind), f"{refusal.kind} {refusal.name}: ", refusal.why)
    if context.is_late and _reported(context) is reason:
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, f"{reason}: {message}")
    # An initializer before this child may have taken hours.
    new = context.status.model_copy(update={"intent": context.timed_anew()}) if context.is_late else context.status
    new = context.writer.with_condition(new, kind, ConditionStatus.FALSE, reason, message)
    new = context.writer.summarised(new, state, reason, message)
    return context.write_change(new, EventNote(EventType.WARNING, reason, status.bounded(message)))


def _first_words(condition: Condition | None, subject: str, why: str) -> str:
    """Return the message that the status already has about a child, or else a new one.

    A quota's message names what is used of it, which changes with every other job: one message per child is enough.
    """
    return condition.message if condition is not None and condition.message.startswith(subject) else subject + why


def _reported(context: Context) -> Reason | None:
    """Return the refusal that the status reports."""
    condition = status.condition(context.status, _place(context)[0])
    return next((reason for reason in REFUSED.values() if condition is not None and condition.reason == reason), None)


def _place(context: Context) -> tuple[ConditionType, State]:
    """Return the condition that reports a refused child, and the state of the job."""
    if status.is_true(context.status, ConditionType.INITIALIZED):
        return ConditionType.CLUSTER_READY, State.STARTING
    return ConditionType.INITIALIZED, State.PENDING


def _name(child: Creation) -> tuple[str, str]:
    return child.manifest["kind"], child.manifest["metadata"]["name"]


def delete_cluster(cluster: Manifest) -> DeleteObject:
    """Return the deletion of one RayCluster, bound to its uid."""
    metadata = cluster["metadata"]
    return DeleteObject(
        api_version=str(cluster.get("apiVersion", "ray.io/v1")),
        kind="RayCluster",
        namespace=metadata["namespace"],
        name=metadata["name"],
        uid=metadata["uid"],
    )
