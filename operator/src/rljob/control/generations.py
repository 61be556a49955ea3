"""Delete what earlier cluster generations of a job left: ConfigMaps, and the Secrets and NetworkPolicies of clusters.

Nothing waits for this. What could not be deleted is found again when the next generation is frozen.
"""

from __future__ import annotations

from collections.abc import Callable

from rljob.cluster import errors
from rljob.cluster.kinds import CONFIG_MAP, NETWORK_POLICY, SECRET, Kind
from rljob.cluster.manifests import controller_uid
from rljob.cluster.port import Cluster
from rljob.control.try_request import labelled
from rljob.core.attempts.recovery import generation_frozen_in
from rljob.core.observed import Manifest
from rljob.core.plan import DeleteGenerations
from rljob.render.labels import JOB_UID
from rljob.telemetry.log import Log

log = Log(__name__)


async def delete_generations(
    cluster: Cluster, job: Manifest, effect: DeleteGenerations, after_write: Callable[[str], None]
) -> None:
    """Delete the ConfigMaps of generations before `effect.before` that are not kept, and what has their names."""
    namespace, job_uid = job["metadata"]["namespace"], job["metadata"]["uid"]
    try:
        found = await labelled(cluster, CONFIG_MAP, namespace, f"{JOB_UID}={job_uid}", metadata_only=True)
        for item in found:
            name, number = item["metadata"]["name"], generation_frozen_in(job_uid, item)
            if controller_uid(item) != job_uid or number is None or number >= effect.before or name in effect.kept:
                continue
            # The ConfigMap last: it shows that there may be others.
            for kind, uid in ((SECRET, None), (NETWORK_POLICY, None), (CONFIG_MAP, item["metadata"]["uid"])):
                if not await _delete(cluster, kind, namespace, name, uid):
                    break
                after_write(f"delete {kind.kind}")
    except errors.OutsideError as error:
        log.warning("Earlier generations were not deleted", namespace=namespace, reason=error.reason, error=str(error))


async def _delete(cluster: Cluster, kind: Kind, namespace: str, name: str, uid: str | None) -> bool:
    """Delete an object of this name; report whether there is none. Policies allow the deletion of those of RLJobs."""
    try:
        await cluster.delete(kind, namespace, name, uid)
    except (errors.NotFound, errors.Conflict):
        return True
    except errors.Forbidden as error:
        log.info("Not deleted", object_kind=kind.kind, name=name, error=str(error))
        return False
    return True
