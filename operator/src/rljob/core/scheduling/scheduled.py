"""When a pod got its node, by the scheduler's condition: from then on its devices are nobody else's.

`scheduling.held_nodes` reads of a cluster that waits, `faults.read_held` of one that runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from rljob.core import times


def scheduled_condition(pod: Mapping[str, Any]) -> dict[str, Any] | None:
    """Give what the scheduler says of a pod; None: nothing yet."""
    told = (pod.get("status") or {}).get("conditions") or ()
    return next((entry for entry in told if entry["type"] == "PodScheduled"), None)


def placed_time(pod: Mapping[str, Any]) -> datetime:
    """Give when a pod got its node, or was first found to have none."""
    told = scheduled_condition(pod) or {}
    return times.from_text(told.get("lastTransitionTime") or pod["metadata"]["creationTimestamp"])
