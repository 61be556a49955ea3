"""Keeping pods away from nodes: the terms of a required node affinity are alternatives, so each gets the exception."""

from __future__ import annotations

from typing import Any

from rljob.build import labels
from rljob.build.hardware import require_nodes


def avoid_nodes(pod: dict[str, Any], names: tuple[str, ...]) -> None:
    """Let a pod's spec require other nodes than these, whatever else it requires."""
    if not names:
        return
    require_nodes(pod, [{"key": labels.HOSTNAME, "operator": "NotIn", "values": sorted(names)}])
