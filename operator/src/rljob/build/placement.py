"""Keeping pods away from nodes: the terms of a required node affinity are alternatives, so each gets the exception."""

from __future__ import annotations

from typing import Any

from rljob.build import labels


def avoid_nodes(pod: dict[str, Any], names: tuple[str, ...]) -> None:
    """Let a pod's spec require other nodes than these, whatever else it requires."""
    if not names:
        return
    exception = {"key": labels.HOSTNAME, "operator": "NotIn", "values": sorted(names)}
    affinity = dict(pod.get("affinity") or {})
    node = dict(affinity.get("nodeAffinity") or {})
    required = dict(node.get("requiredDuringSchedulingIgnoredDuringExecution") or {})
    terms = required.get("nodeSelectorTerms") or [{}]
    required["nodeSelectorTerms"] = [
        {**term, "matchExpressions": [*(term.get("matchExpressions") or ()), exception]} for term in terms
    ]
    pod["affinity"] = {**affinity, "nodeAffinity": {**node, "requiredDuringSchedulingIgnoredDuringExecution": required}}
