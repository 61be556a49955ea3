"""How many devices each worker of a job has: those of its worker group, which its pod names in a label of KubeRay."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.render.labels import RAY_GROUP


@dataclass(frozen=True)
class WorkerSizes:
    """Devices per worker of a job."""

    by_group: Mapping[str, int]

    @classmethod
    def of_spec(cls, spec: RLJobSpec) -> WorkerSizes:
        """Return those of a spec."""
        return cls({group.name: group.devices_per_node for group in spec.worker_groups})

    def of(self, group: str) -> int:
        """Return the devices of a worker; those of the largest where its group is not known."""
        return self.by_group.get(group, max(self.by_group.values()))


def group_of(pod: Mapping[str, Any]) -> str:
    """Return the name of a pod's worker group; empty where no label names it."""
    return str((pod["metadata"].get("labels") or {}).get(RAY_GROUP, ""))
