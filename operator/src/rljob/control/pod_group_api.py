"""What the API server serves of Volcano's PodGroup, read when a job begins and kept for a minute.

Only fields that the CRD has may be used: the API server drops unknown fields silently, and the job would run without
what it asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from rljob.cluster.errors import Forbidden, NotFound, OutsideError
from rljob.cluster.kinds import POD_GROUP
from rljob.cluster.port import Cluster
from rljob.control.store import Store
from rljob.core.observed import UNSEEN, PodGroupApi, Unseen
from rljob.telemetry.log import Log

KEEP_SECONDS = 60.0

log = Log(__name__)


@dataclass
class PodGroups:
    """The PodGroup API as it was last read."""

    cluster: Cluster
    store: Store
    monotonic: Callable[[], float]
    _api: PodGroupApi | Unseen = UNSEEN
    _read_at: float = float("-inf")
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Jobs that begin together share one request."""

    async def api(self) -> PodGroupApi | Unseen:
        """Return the API; unseen if it could not be read."""
        if POD_GROUP in self.store.forbidden:
            return PodGroupApi(problem=f"the operator may not list {POD_GROUP.resource}")
        async with self._lock:
            if isinstance(self._api, Unseen) or self.monotonic() - self._read_at >= KEEP_SECONDS:
                self._api, self._read_at = await self._read(), self.monotonic()
            return self._api

    async def _read(self) -> PodGroupApi | Unseen:
        try:
            return PodGroupApi(await self.cluster.spec_fields(POD_GROUP))
        except NotFound:
            if POD_GROUP in self.store.served:
                # A server that has just started does not publish the schemas of its CRDs yet.
                return UNSEEN
            return PodGroupApi(problem=f"the API server does not serve {POD_GROUP.resource}")
        except Forbidden as error:
            return PodGroupApi(problem=f"the operator may not read /openapi/v3: {error}")
        except OutsideError as error:
            log.info("The schema of PodGroups could not be read", reason=error.reason, error=str(error))
            return UNSEEN
