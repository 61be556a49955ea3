"""verl's client of the replicas, which also passes to the router a request's group and the length of its response.

The agent loops generate by it (`LLMServerManager.get_client(client_cls=…)`). verl's client releases its replica before
it knows the response (workers/rollout/llm_server.py:101-168, 0.9.1), so ours does it when the response is there.
"""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ray.exceptions import ActorDiedError
from verl.workers.rollout.llm_server import LLMServerClient
from verl.workers.rollout.replica import TokenOutput

from rljob_runtime.verl_plugin.router.late_router import NOWHERE

ABORTED = "aborted"
"""The `stop_reason` of verl's replicas for a request that was ended (vllm_async_server.py:721)."""
MEDIA = ("image_data", "video_data", "audio_data")


class AbandonedError(Exception):
    """Ends a request that waited when the rollout was abandoned."""


@dataclass
class _Call:
    """One turn of a request."""

    server_id: str | None = None


PROMPT: ContextVar[str | None] = ContextVar("prompt", default=None)
"""verl's name for the prompt of the agent loop that runs, where our worker runs it (agent_loop.py)."""
_call: ContextVar[_Call] = ContextVar("call")
_returning: set[asyncio.Future[None]] = set()
"""Tasks that return what a cancelled request gets. The event loop alone would not keep them."""


class LengthClient(LLMServerClient):  # type: ignore[misc] # verl ships no types
    """Used by the agent-loop workers; each request is a task of its own."""

    async def generate(self, request_id: str, **options: Any) -> TokenOutput:  # noqa: ANN401 - verl's
        """Generate as verl does. The response of a request that was abandoned in the router is empty."""
        call, tokens, failed = _Call(), None, False
        token = _call.set(call)
        try:
            output = await super().generate(request_id, **options)
        except AbandonedError:
            return TokenOutput(token_ids=[], stop_reason=ABORTED)
        except ActorDiedError:
            # It would attract every request that waits, because it has the fewest.
            self._load_balancer.remove_servers.remote([call.server_id])
            raise
        except Exception:
            failed = True
            raise
        else:
            tokens = None if output.stop_reason == ABORTED else len(output.token_ids)
            return output
        finally:
            _call.reset(token)
            if call.server_id is not None:
                self._load_balancer.release_server.remote(call.server_id, request_id, tokens, failed=failed)

    async def _acquire_server(self, request_id: str, **extra: Any) -> tuple[str, Any]:  # noqa: ANN401 - verl's
        place = self._load_balancer.acquire_server.remote(request_id, group_of(extra))
        try:
            server_id, server = await place
        except asyncio.CancelledError:
            # The call in the router is not cancelled by it, and would keep the room that it gets.
            _returning.add(returning := asyncio.ensure_future(self._give_back(place, request_id)))
            returning.add_done_callback(_returning.discard)
            raise
        if server_id == NOWHERE:
            raise AbandonedError
        _call.get().server_id = server_id
        return server_id, server

    async def _give_back(self, place: Any, request_id: str) -> None:  # noqa: ANN401 - Ray's ObjectRef
        server_id, _ = await place
        self._load_balancer.release_server.remote(server_id, request_id)

    def _release_server(self, server_id: str, request_id: str | None = None) -> None:
        """Do nothing; `generate` releases it."""


def group_of(request: dict[str, Any]) -> str | None:
    """Return a name for the request's prompt, the same in every step.

    Tokens do not distinguish images, so that a prompt with media has verl's name, which is new in each step.
    """
    if any(request.get(name) is not None for name in MEDIA):
        return PROMPT.get()
    return hashlib.blake2b(array("q", request["prompt_ids"]).tobytes(), digest_size=16).hexdigest()
