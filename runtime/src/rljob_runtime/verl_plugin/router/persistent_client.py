"""verl's client of replicas that pause for new weights, which also outlives a replica.

As released, a request whose replica is lost fails, its prompt is replaced by another, and the lost replica has the
fewest requests, so that the router gives it all the next ones (workers/rollout/llm_server.py and router.py, 0.9.1).
Here, such a request asks another replica. What earlier segments have generated stays; the segment begins again.
"""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from typing import Any

from ray.exceptions import RayActorError
from verl.workers.rollout.llm_server import FullyAsyncLLMServerClient, LLMServerClient
from verl.workers.rollout.replica import TokenOutput

NO_REPLICA = "No available servers in load balancer"
"""Of our router and verl's (router.py)."""
RETRY_SECONDS = 1.0

_asked: ContextVar[str | None] = ContextVar("asked", default=None)
"""The replica of the request that runs."""


class _AsksAnother(LLMServerClient):  # type: ignore[misc] # verl ships no types
    """Generates one segment."""

    async def generate(self, request_id: str, **options: Any) -> TokenOutput:  # noqa: ANN401 - verl's
        """Generate by whichever replica is there. The trainer ends the run if there is none for too long."""
        while True:
            _asked.set(None)
            try:
                return await super().generate(request_id, **options)
            except RayActorError:
                # A replica that is only late is added again at the next sync (trainer/replicas.py).
                if (lost := _asked.get()) is None:
                    raise
                await self._load_balancer.remove_servers.remote([lost])
            except RuntimeError as error:
                if NO_REPLICA not in str(error):
                    raise
                await asyncio.sleep(RETRY_SECONDS)

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:  # noqa: ANN401 - verl's
        server_id, server = await super()._acquire_server(request_id, **extra)
        _asked.set(server_id)
        return server_id, server


class PersistentClient(FullyAsyncLLMServerClient, _AsksAnother):  # type: ignore[misc] # verl ships no types
    """verl's loop over segments (`FullyAsyncLLMServerClient.generate`), each by `_AsksAnother`."""
