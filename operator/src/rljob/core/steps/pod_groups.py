"""Volcano's PodGroup: whether one can be made, and its end with the cluster generation that it was made for.

It is created right before the RayCluster, by the same plan (`starting.create_cluster`). Its owner is the RLJob, since
it comes before the cluster; so what ends with a generation is deleted here: a group without pods would still reserve
room in its queue.
"""

from __future__ import annotations

from rljob.api.status import ConditionType, State
from rljob.core import status, times
from rljob.core.context import LOOK_AGAIN_SECONDS, Context
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import DeleteObject, Plan
from rljob.core.reasons import Reason
from rljob.core.scheduling.gang import unavailable
from rljob.core.steps.restarting import give_up
from rljob.core.steps.starting import tell
from rljob.render.podgroup import API_VERSION, Gang


def release_groups(context: Context) -> Plan | None:
    """Delete the PodGroups of generations that are over, when their clusters are gone."""
    if context.status.intent is None:
        return None
    living = {cluster["metadata"]["name"] for cluster in context.observed.clusters}
    if context.active and not status.is_true(context.status, ConditionType.FINISHED):
        living.add(context.intent.cluster_name)
    over = [
        group
        for group in context.observed.pod_groups
        if group["metadata"]["name"] not in living and "deletionTimestamp" not in group["metadata"]
    ]
    return Plan(effects=tuple(map(_delete, over)), requeue_after_seconds=LOOK_AGAIN_SECONDS) if over else None


def _delete(group: Manifest) -> DeleteObject:
    metadata = group["metadata"]
    return DeleteObject(API_VERSION, "PodGroup", metadata["namespace"], metadata["name"], metadata["uid"])


def await_volcano(context: Context) -> Plan | None:
    """Say so when no PodGroup can be made of the kind that the job needs, and wait no longer than for a start."""
    if context.cluster is not None or context.frozen_cluster is not None or context.gang is not Gang.VOLCANO:
        return None
    api = context.observed.pod_group_api
    if isinstance(api, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    message = "" if context.frozen_spec is None else unavailable(context.frozen_spec, api)
    if not message:
        return None
    if context.now >= times.from_text(context.intent.start_deadline):
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, message)
    return tell(context, context.status, Reason.GANG_UNAVAILABLE.value, message, problem=True, state=State.PENDING)
