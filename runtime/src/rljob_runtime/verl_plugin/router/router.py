"""A load balancer like verl's default, which also records the times of each replica's first request and last response.

verl makes it an actor (`rollout.router_config_path`); the trainer reads and resets the times between phases of a step.
It follows verl's `GlobalRequestLoadBalancer` (workers/rollout/router.py:133-298, 0.9.1) without inheriting from it:
importing that class imports torch, verl and vLLM into a process that needs none of them, which takes eight seconds of
processor time at each start. runtime/tests/upstream compares the two, request by request.
"""

from __future__ import annotations

import random
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Any

from rljob_runtime.verl_plugin.router.replica_times import Plain, ReplicaTimes

STICKY_MAX = 1 << 17
"""Requests whose replica is remembered, the most recent ones. verl's 10,000 (DEFAULT_ROUTING_CACHE_SIZE) are fewer than
the responses of a large batch, whose later turns would lose their caches."""


class TimedRouter:
    """Routes like verl: sticky sessions, then the replica with the fewest requests."""

    def __init__(self, servers: Mapping[str, Any], yaml_config: Mapping[str, Any] | None = None) -> None:  # noqa: ARG002
        self._servers = dict(servers)
        self._inflight = dict.fromkeys(servers, 0)
        self._sticky: OrderedDict[str, str] = OrderedDict()
        self._times = ReplicaTimes(time.monotonic)

    def acquire_server(self, request_id: str) -> tuple[str, Any]:
        """Choose a replica for a request and record the time."""
        server_id = self._choose(request_id)
        self._inflight[server_id] += 1
        self._times.acquired(server_id)
        return server_id, self._servers[server_id]

    def _choose(self, request_id: str) -> str:
        known = self._sticky.get(request_id)
        if known is not None and known in self._inflight:
            self._sticky.move_to_end(request_id)
            return known
        if not self._inflight:
            raise RuntimeError("No available servers in load balancer")
        fewest = min(self._inflight.values())
        candidates = [name for name, count in self._inflight.items() if count == fewest]
        chosen = random.choice(candidates)  # noqa: S311 - shares out requests
        self._sticky[request_id] = chosen
        self._sticky.move_to_end(request_id)
        if len(self._sticky) > STICKY_MAX:
            self._sticky.popitem(last=False)
        return chosen

    def release_server(self, server_id: str, request_id: str | None = None) -> None:  # noqa: ARG002 - verl's signature
        """Record the time of a response."""
        if self._inflight.get(server_id, 0) > 0:
            self._inflight[server_id] -= 1
        self._times.released(server_id)

    def take_window(self) -> Plain:
        """Return the times since the last call, for every replica, and reset them."""
        return self._times.take(self._inflight)

    # The rest of verl's protocol (RequestLoadBalancer).

    def require_acquire_fields(self) -> list[str]:
        """Return what `acquire_server` wants of a request beside its id: nothing."""
        return []

    def require_release_fields(self) -> list[str]:
        """Return what `release_server` wants of a request: nothing."""
        return []

    def add_servers(self, servers: Mapping[str, Any]) -> None:
        """Add replicas."""
        self._servers.update(servers)
        self._inflight.update(dict.fromkeys(servers, 0))

    def remove_servers(self, server_ids: Iterable[str]) -> None:
        """Remove replicas; their requests choose others when they come again."""
        for server_id in server_ids:
            self._inflight.pop(server_id, None)
            self._servers.pop(server_id, None)

    def get_inflight_count(self, server_id: str) -> int:
        """Return the number of a replica's requests that are under way."""
        return self._inflight.get(server_id, 0)

    def get_total_inflight(self) -> int:
        """Return the number of all requests that are under way."""
        return sum(self._inflight.values())

    def get_all_servers(self) -> list[str]:
        """Return the replicas."""
        return list(self._inflight)

    def clear_sticky_cache(self) -> dict[str, Any]:
        """Forget which request went where."""
        cleared = len(self._sticky)
        self._sticky.clear()
        return {"cleared_entries": cleared, "server_loads": dict(self._inflight)}

    def get_status(self) -> dict[str, Any]:
        """Return the state for debugging."""
        return {
            "servers": dict(self._inflight),
            "total_inflight": self.get_total_inflight(),
            "active_servers": len(self._inflight),
            "registered_handles": list(self._servers),
        }
