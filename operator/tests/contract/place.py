"""Where a contract test happens."""

from __future__ import annotations

from dataclasses import dataclass

from rljob.cluster.port import Cluster


@dataclass
class Place:
    """A cluster and a namespace of this test's own."""

    cluster: Cluster
    namespace: str
