"""Volcano's PodGroup: whether one can be created, and its deletion with the cluster generation that it belongs to.

It is created right before the RayCluster, by the same plan (`starting.create_cluster`). Its owner is the RLJob, since
it exists before the cluster; so it is deleted here when a generation ends: a group without pods would still reserve
room in its queue.
"""

from __future__ import annotations

from rljob.api.status import ConditionType, State
from rljob.core import status
from rljob.core.context import Context
from rljob.core.manifest_facts import is_deleted
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import DeleteObject, Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.reasons import Reason
from rljob.core.requirements import Requirements
from rljob.core.scheduling.gang import unavailable
from rljob.core.step import step
from rljob.core.transitions.conclusions import give_up
from rljob.core.transitions.conditions import report_not_ready
from rljob.render.podgroup import API_VERSION, Gang


@step()
def release_groups(context: Context) -> Plan | None:
    """Delete the PodGroups of ended generations once their clusters are gone."""
    if context.status.intent is None:
        return None
    living = {cluster["metadata"]["name"] for cluster in context.observed.clusters}
    if context.active and not status.is_true(context.status, ConditionType.FINISHED):
        living.add(context.intent.cluster_name)
    over = [
        group
        for group in context.observed.pod_groups
        if group["metadata"]["name"] not in living and not is_deleted(group)
    ]
    return Plan(effects=tuple(map(_delete, over)), requeue_after_seconds=LOOK_AGAIN_SECONDS) if over else None


def _delete(group: Manifest) -> DeleteObject:
    metadata = group["metadata"]
    return DeleteObject(API_VERSION, "PodGroup", metadata["namespace"], metadata["name"], metadata["uid"])


@step(Requirements(pod_groups=True), when=lambda seen: seen.cluster is None)
def await_volcano(context: Context) -> Plan | None:
    """Report that the PodGroup that the job needs cannot be created, and wait until the start deadline."""
    if context.frozen_cluster is not None or context.gang is not Gang.VOLCANO:
        return None
    api = context.observed.pod_group_api
    if isinstance(api, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    message = "" if context.frozen_spec is None else unavailable(context.frozen_spec, api)
    if not message:
        return None
    if context.is_late:
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, message)
    return report_not_ready(
        context, context.status, Reason.GANG_UNAVAILABLE.value, message, problem=True, state=State.PENDING
    )
