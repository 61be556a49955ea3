"""Volcano's PodGroup: whether one can be made, and its end with the cluster generation that it was made for.

It is created right before the RayCluster, by the same plan (`starting.create_cluster`). Its owner is the RLJob, since
it comes before the cluster; so what ends with a generation is deleted here: a group without pods would still reserve
room in its queue.
"""

from __future__ import annotations

from rljob.api.status import ConditionType, State
from rljob.build.podgroup import API_VERSION, Gang
from rljob.core import clock, status
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import DeleteObject, Plan
from rljob.core.policies.gang import unavailable
from rljob.core.reasons import Reason
from rljob.core.steps.restarting import give_up
from rljob.core.steps.starting import tell
from rljob.core.view import LOOK_AGAIN_SECONDS, View


def release_groups(view: View) -> Plan | None:
    """Delete the PodGroups of generations that are over, when their clusters are gone."""
    if view.status.intent is None:
        return None
    living = {cluster["metadata"]["name"] for cluster in view.observed.clusters}
    if view.active and not status.is_true(view.status, ConditionType.FINISHED):
        living.add(view.intent.cluster_name)
    over = [
        group
        for group in view.observed.pod_groups
        if group["metadata"]["name"] not in living and "deletionTimestamp" not in group["metadata"]
    ]
    return Plan(effects=tuple(map(_delete, over)), requeue_after_seconds=LOOK_AGAIN_SECONDS) if over else None


def _delete(group: Manifest) -> DeleteObject:
    metadata = group["metadata"]
    return DeleteObject(API_VERSION, "PodGroup", metadata["namespace"], metadata["name"], metadata["uid"])


def await_volcano(view: View) -> Plan | None:
    """Say so when no PodGroup can be made of the kind that the job needs, and wait no longer than for a start."""
    if view.cluster is not None or view.frozen_cluster is not None or view.gang is not Gang.VOLCANO:
        return None
    api = view.observed.pod_group_api
    if isinstance(api, Unseen):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    message = "" if view.frozen_spec is None else unavailable(view.frozen_spec, api)
    if not message:
        return None
    if view.now >= clock.from_text(view.intent.start_deadline):
        return give_up(view, Reason.START_DEADLINE_EXCEEDED, message)
    return tell(view, view.status, Reason.GANG_UNAVAILABLE.value, message, problem=True, state=State.PENDING)
