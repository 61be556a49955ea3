"""Clusters that nobody wants: a leader that was paused in a write may send it after its successor has gone on.

No precondition of the API server can refuse such a create. The cluster it makes belongs to a generation that has ended,
so it is deleted again, whatever state the job is in; next to a cluster that runs, `starting.create_cluster` does so.
"""

from __future__ import annotations

from rljob.core.context import LOOK_AGAIN_SECONDS, Context
from rljob.core.plan import Plan
from rljob.core.steps.finishing import delete_cluster


def free_strays(context: Context) -> Plan | None:
    """Delete what is there between two cluster generations, when nothing may be."""
    if context.status.intent is None or context.active:
        return None
    strays = [cluster for cluster in context.observed.clusters if "deletionTimestamp" not in cluster["metadata"]]
    return (
        Plan(effects=tuple(map(delete_cluster, strays)), requeue_after_seconds=LOOK_AGAIN_SECONDS) if strays else None
    )
