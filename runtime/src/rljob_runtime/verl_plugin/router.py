"""verl's default load balancer, which also records the times of each replica's first request and last response.

verl runs it as an actor (`rollout.router_config_path`). The trainer reads and resets the times between phases of a
step.
"""

from __future__ import annotations

import time
from typing import Any

from verl.workers.rollout.router import GlobalRequestLoadBalancer

from rljob_runtime.verl_plugin.replica_times import Plain, ReplicaTimes


class TimedRouter(GlobalRequestLoadBalancer):  # type: ignore[misc] # verl ships no types
    """Routes like verl: sticky sessions, then the replica with the fewest requests."""

    def __init__(self, servers: dict[str, Any], yaml_config: dict[str, Any] | None = None) -> None:  # noqa: ARG002
        super().__init__(servers=servers)
        self._times = ReplicaTimes(time.monotonic)

    def acquire_server(self, request_id: str) -> tuple[str, Any]:
        """Choose a replica for a request and record the time."""
        server_id, handle = super().acquire_server(request_id)
        self._times.acquired(server_id)
        return server_id, handle

    def release_server(self, server_id: str, request_id: str | None = None) -> None:
        """Record the time of a response."""
        super().release_server(server_id, request_id)
        self._times.released(server_id)

    def take_window(self) -> Plain:
        """Return the times since the last call, for every replica, and reset them."""
        return self._times.take(self.get_all_servers())
