"""Releases the port blocks of deleted jobs, once none of their pods can listen on them.

A job that finishes releases its block in its own rounds; a deleted job has no more rounds. The leading operator calls
this after each resync.
"""

from __future__ import annotations

from rljob.cluster.errors import Conflict, NotFound, OutsideError
from rljob.cluster.kinds import CONFIG_MAP, POD
from rljob.cluster.port import Cluster
from rljob.control.store import Store
from rljob.core.scheduling.port_blocks import Holder, PortPool, read_allocations
from rljob.render.labels import JOB_UID, RAY_NODE_TYPE
from rljob.telemetry.log import Log

log = Log(__name__)


async def sweep(cluster: Cluster, store: Store, pool: PortPool) -> int:
    """Release unused blocks; return how many. After a failed request the next sweep tries again."""
    try:
        found = read_allocations(pool, await cluster.get(CONFIG_MAP, pool.namespace, pool.name))
        living = store.port_claimants()
        gone = [holder for holder in found.held.values() if holder.uid not in living]
        swept = {holder.uid for holder in gone if await _is_quiet(cluster, holder)}
        if swept:
            await cluster.replace(found.without(swept).manifest())
    except NotFound:
        return 0
    except Conflict:
        log.info("Port blocks changed during the sweep; the next sweep tries again")
        return 0
    except OutsideError as error:
        log.warning("Unused port blocks could not be released", reason=error.reason, error=str(error))
        return 0
    for holder in gone:
        if holder.uid in swept:
            log.info(
                "Released the port block of a deleted job", job=f"{holder.namespace}/{holder.name}", uid=holder.uid
            )
    return len(swept)


async def _is_quiet(cluster: Cluster, holder: Holder) -> bool:
    """Report whether no pod of the job is left; False if its namespace cannot be read."""
    try:
        listing = await cluster.list(POD, holder.namespace, f"{JOB_UID}={holder.uid},{RAY_NODE_TYPE}", 1)
    except OutsideError as error:
        log.warning("Pods of a deleted job could not be listed", namespace=holder.namespace, reason=error.reason)
        return False
    return not listing.items
