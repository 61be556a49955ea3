"""Clusters of no generation: a leader that was paused during a create may send it after its successor took over.

No precondition of the API server can refuse such a create. The cluster belongs to a generation that has ended, so it is
deleted again, whatever state the job is in. Next to a running cluster, `starting.create_cluster` does the same.
"""

from __future__ import annotations

from rljob.core.context import Context
from rljob.core.manifest_facts import is_deleted
from rljob.core.observed import Manifest
from rljob.core.plan import Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.requirements import STOPS_HERE, snapshot
from rljob.core.step import step
from rljob.core.transitions.children import delete_cluster
from rljob.core.watched import Watched


def _orphans(seen: Watched) -> tuple[Manifest, ...]:
    return tuple(cluster for cluster in seen.clusters if seen.between_generations and not is_deleted(cluster))


@step(lambda seen: snapshot(seen) | STOPS_HERE, when=lambda seen: bool(_orphans(seen)))
def delete_orphans(context: Context) -> Plan:
    """Delete the clusters that exist between two cluster generations, when there may be none."""
    doomed = tuple(map(delete_cluster, _orphans(context)))
    return Plan(effects=doomed, requeue_after_seconds=LOOK_AGAIN_SECONDS)
