"""Clusters of no generation: a leader that was paused during a create may send it after its successor took over.

No precondition of the API server can refuse such a create. The cluster belongs to a generation that has ended, so it is
deleted again, whatever state the job is in. Next to a running cluster, `starting.create_cluster` does the same.
"""

from __future__ import annotations

from rljob.core.context import Context
from rljob.core.manifest_facts import is_deleted
from rljob.core.plan import Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.requirements import NOTHING, STOPS_HERE, Requirements, snapshot
from rljob.core.step import step
from rljob.core.transitions.children import delete_cluster
from rljob.core.watched import Watched


def _orphans(seen: Watched) -> Requirements:
    orphaned = seen.began and not seen.active and not all(map(is_deleted, seen.clusters))
    return snapshot(seen) | STOPS_HERE if orphaned else NOTHING


@step(_orphans)
def delete_orphans(context: Context) -> Plan | None:
    """Delete the clusters that exist between two cluster generations, when there may be none."""
    if context.status.intent is None or context.active:
        return None
    orphans = [cluster for cluster in context.observed.clusters if not is_deleted(cluster)]
    return (
        Plan(effects=tuple(map(delete_cluster, orphans)), requeue_after_seconds=LOOK_AGAIN_SECONDS) if orphans else None
    )
