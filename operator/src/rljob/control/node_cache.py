"""The cluster's nodes, listed rarely and kept small, to check that the hardware that a job names exists.

One LIST serves all jobs for five minutes, or for one minute while a job waits for nodes. A cluster of more than a
thousand nodes is read in part and then not judged. An installation for one namespace may not read nodes; then nothing
is known of them, and nothing is reported.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from rljob.cluster.errors import Forbidden, OutsideError
from rljob.cluster.kinds import NODE
from rljob.cluster.port import Cluster
from rljob.core.observed import UNSEEN, Unseen
from rljob.core.scheduling.discovery import Nodes, node_facts
from rljob.render.accelerator_table import AcceleratorTable
from rljob.telemetry.log import Log

NODES_LIMIT = 1000
KEEP_SECONDS = 300.0
FRESH_SECONDS = 60.0
RETRY_SECONDS = 10.0
"""After a failed read: a job that begins meanwhile begins without a check of its hardware."""

log = Log(__name__)


@dataclass
class NodeCache:
    """The nodes as they were last read."""

    cluster: Cluster
    monotonic: Callable[[], float]
    accelerators: AcceleratorTable
    _nodes: Nodes | Unseen = UNSEEN
    _read_at: float = float("-inf")
    _failed: bool = False
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Jobs that begin together share one request."""

    async def get(self, *, fresh: bool = False) -> Nodes | Unseen:
        """Return the nodes; fresh: for a job that waits for some of them."""
        async with self._lock:
            keep = RETRY_SECONDS if self._failed else FRESH_SECONDS if fresh else KEEP_SECONDS
            if self.monotonic() - self._read_at >= keep:
                self._nodes = await self._read()
                self._failed = self._nodes is UNSEEN
                self._read_at = self.monotonic()
            return self._nodes

    async def _read(self) -> Nodes | Unseen:
        try:
            listing = await self.cluster.list(NODE, None, "", NODES_LIMIT)
        except Forbidden as error:
            # A job that waits for nodes would wait forever for this answer too.
            log.info("Nodes may not be read", error=str(error))
            return Nodes((), complete=False)
        except OutsideError as error:
            log.info("Nodes could not be read", reason=error.reason, error=str(error))
            return UNSEEN
        facts = tuple(node_facts(manifest, self.accelerators) for manifest in listing.items)
        return Nodes(facts, complete=len(listing.items) < NODES_LIMIT)
