"""When a pod got its node, from the condition PodScheduled; from then on the pod holds its devices.

`scheduling.held_nodes` reads it for a cluster that waits, `node_faults.read_held` for one that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rljob.core import times


def scheduled_condition(pod: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the scheduler's condition of a pod, if there is one."""
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return next((entry for entry in conditions if entry["type"] == "PodScheduled"), None)


def placed_time(pod: Mapping[str, Any]) -> datetime:
    """Return when a pod got its node, or was first found unschedulable."""
    condition = scheduled_condition(pod) or {}
    return times.from_text(condition.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])
