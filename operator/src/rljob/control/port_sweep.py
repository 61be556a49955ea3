"""Sweeps the blocks of ports that jobs left behind, when no pod of theirs can still listen on them.

A job that ends by itself gives its block back in its own rounds; one that is deleted has no more rounds. Called after
each resync, by the one operator that leads.
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
    """Take back what nobody uses; gives how many blocks. A request that fails leaves it to the next sweep."""
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
        log.info("The blocks of ports changed during the sweep; the next one looks again")
        return 0
    except OutsideError as error:
        log.warning("Blocks of ports could not be swept", reason=error.reason, error=str(error))
        return 0
    for holder in gone:
        if holder.uid in swept:
            log.info("A deleted job's block of ports is free", job=f"{holder.namespace}/{holder.name}", uid=holder.uid)
    return len(swept)


async def _is_quiet(cluster: Cluster, holder: Holder) -> bool:
    """Whether no pod of it is left; of one in a namespace that cannot be read it is not known."""
    try:
        listing = await cluster.list(POD, holder.namespace, f"{JOB_UID}={holder.uid},{RAY_NODE_TYPE}", 1)
    except OutsideError as error:
        log.warning("Pods of a deleted job could not be listed", namespace=holder.namespace, reason=error.reason)
        return False
    return not listing.items
