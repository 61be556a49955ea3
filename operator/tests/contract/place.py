"""Where a contract test happens."""

from __future__ import annotations

from dataclasses import dataclass

from rljob.cluster.kinds import Kind
from rljob.cluster.port import Cluster

NOWHERE = Kind("nowhere.rljob.dev/v1", "Nothing", "nothings")
"""A kind that no cluster serves."""


@dataclass
class Place:
    """A cluster and a namespace of this test's own."""

    cluster: Cluster
    namespace: str
