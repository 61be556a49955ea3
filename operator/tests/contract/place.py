"""The cluster and namespace of a contract test."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from rljob.cluster.errors import Forbidden
from rljob.cluster.kinds import Kind
from rljob.cluster.port import Cluster

NOWHERE = Kind("nowhere.rljob.dev/v1", "Nothing", "nothings")
"""A kind that no cluster serves."""


@dataclass
class Place:
    """A cluster, and a namespace for this test only."""

    cluster: Cluster
    namespace: str

    async def with_account(self, pod: dict[str, Any]) -> None:
        """Create a pod as soon as the namespace has its service account."""
        async with asyncio.timeout(60):
            while True:
                try:
                    await self.cluster.create(pod)
                except Forbidden:
                    await asyncio.sleep(0.2)
                else:
                    return
