"""The router that holds requests back: an actor around `late_binding`, with the clock of `router`.

verl creates it by the class that the file names (`rollout.router_config_path`), which `register` makes to measure:
every request that waits is a running call of the actor, and Ray's default of 1,000 calls would keep the responses out
that end the wait. Requests beyond the limit are sent on at once, so no number of them can block it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from rljob_runtime.verl_plugin.router.late_binding import LateBinding, Limits
from rljob_runtime.verl_plugin.router.replica_times import Plain, ReplicaTimes

if TYPE_CHECKING:
    from omegaconf import DictConfig

NOWHERE = ""
"""The replica of a request that was abandoned."""
FAILURES_MAX = 8
"""Responses that fail one after the other, with which a replica gets no further requests: one that fails at once has
always the fewest, and would be given nearly all that wait."""
OTHER_CALLS = 1_024
"""Room for calls that do not wait: responses, new requests on their way, and the trainer's own."""


class LateBindingRouter:
    """Satisfies verl's protocol (RequestLoadBalancer, workers/rollout/router.py:31, 0.9.1)."""

    limits = Limits(sequences=1, engines=1, requests=1)
    """Set by `register`."""

    def __init__(self, servers: Mapping[str, Any], yaml_config: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        self._servers = dict(servers)
        self._requests = LateBinding(servers, self.limits, time.monotonic)
        self._places: dict[int, asyncio.Future[tuple[str, Any]]] = {}
        self._times = ReplicaTimes(time.monotonic)
        self._looks_again = False
        self._failures: dict[str, int] = {}

    async def acquire_server(self, request_id: str, group: str | None = None) -> tuple[str, Any]:
        """Return a replica when the request's turn has come, or nowhere if it was abandoned."""
        ticket = self._requests.arrive(request_id, group)
        place: asyncio.Future[tuple[str, Any]] = asyncio.get_running_loop().create_future()
        self._places[ticket] = place
        self._send()
        return await place

    async def release_server(
        self,
        server_id: str,
        request_id: str,
        tokens: int | None = None,
        failed: bool = False,  # noqa: FBT001, FBT002 - a call of Ray
    ) -> None:
        """Take the end of a request, with the number of tokens of its response."""
        self._failures[server_id] = self._failures.get(server_id, 0) + 1 if failed else 0
        if self._failures[server_id] >= FAILURES_MAX and server_id in self._servers and len(self._servers) > 1:
            text = f"rljob: replica {server_id} gets no more requests: {FAILURES_MAX} in a row failed"
            print(text, flush=True)  # noqa: T201 - the actor's log
            await self.remove_servers([server_id])
        if self._requests.finish(server_id, request_id, tokens):
            self._times.released(server_id)
            self._send()

    def _send(self) -> None:
        # Read before the decisions: requests that are held back because this is not over yet need another look, also if
        # it is over by the time of the last line.
        seconds = self._requests.settles_in
        for placed in self._requests.placed():
            place = self._places.pop(placed.ticket)
            if placed.replica is not None:
                self._times.acquired(placed.replica)
                place.set_result((placed.replica, self._servers[placed.replica]))
            elif self._requests.closed:
                place.set_result((NOWHERE, None))
            else:  # as verl's router says it (router.py:191, 0.9.1)
                place.set_exception(RuntimeError("No available servers in load balancer"))
        if self._requests.waiting and seconds and not self._looks_again:
            self._looks_again = True
            asyncio.get_running_loop().call_later(seconds, self._look_again)

    def _look_again(self) -> None:
        self._looks_again = False
        self._send()

    # For the trainer.

    async def take_window(self) -> Plain:
        """Return the times of every replica since the last call, and reset them; requests are placed again."""
        self._requests.open()
        return self._times.take(self._servers)

    async def end_waiting(self) -> int:
        """Abandon the requests that wait, and those that come before the next window. Return how many waited."""
        count = self._requests.close()
        self._send()
        return count

    # The rest of verl's protocol.

    async def require_acquire_fields(self) -> list[str]:
        """Return what verl's own client passes beside a request's id: nothing. Ours passes the group."""
        return []

    async def require_release_fields(self) -> list[str]:
        """Return what `release_server` wants of a request."""
        return ["request_id"]

    async def add_servers(self, servers: Mapping[str, Any]) -> None:
        """Add replicas, which take requests that wait."""
        self._servers.update(servers)
        self._requests.add(servers)
        self._send()

    async def remove_servers(self, server_ids: Iterable[str]) -> None:
        """Remove replicas. Requests that wait go to others."""
        names = list(server_ids)
        for name in names:
            self._servers.pop(name, None)
        self._requests.remove(names)
        self._send()

    async def get_inflight_count(self, server_id: str) -> int:
        """Return the number of a replica's requests that are under way."""
        return self._requests.load.get(server_id, 0)

    async def get_total_inflight(self) -> int:
        """Return the number of all requests that are under way, those that wait included."""
        return sum(self._requests.load.values()) + self._requests.waiting

    async def get_all_servers(self) -> list[str]:
        """Return the replicas."""
        return list(self._servers)

    async def clear_sticky_cache(self) -> dict[str, Any]:
        """Forget which request went where."""
        return {"cleared_entries": self._requests.forget_sessions(), "server_loads": self._requests.load}

    async def get_status(self) -> dict[str, Any]:
        """Return the state for debugging."""
        load = self._requests.load
        return {
            "servers": load,
            "total_inflight": sum(load.values()) + self._requests.waiting,
            "active_servers": len(load),
            "registered_handles": list(self._servers),
            "waiting": self._requests.waiting,
        }


def limits_of(rollout: DictConfig, requests: int) -> Limits:
    """Return what the replicas of verl's configuration take; the trainer sends this many requests at a time.

    Arguments of vLLM below engine_kwargs replace the rollout's own (vllm_async_server.py:333-349).
    """
    arguments = (rollout.get("engine_kwargs") or {}).get("vllm") or {}
    sequences = arguments.get("max_num_seqs") or rollout["max_num_seqs"]
    return Limits(int(sequences), int(rollout["data_parallel_size"]), requests)


def actor_class(limits: Limits, router: type = LateBindingRouter) -> Any:  # noqa: ANN401 - Ray's ActorClass
    """Return the actor for these limits."""
    import ray

    made = type("LateBindingRouter", (router,), {"limits": limits})
    return ray.remote(max_concurrency=limits.requests + OTHER_CALLS)(made)


def register(limits: Limits) -> None:
    """Let late_router.yaml name the actor for these limits, in this process."""
    globals()["Registered"] = actor_class(limits)
