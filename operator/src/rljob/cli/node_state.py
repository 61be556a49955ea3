"""What is wrong with the nodes that have a job's devices. Pure.

The scheduler's message, which the operator translates in the status, does not show which nodes are cordoned, not ready
or offer fewer devices than they have; a device plug-in reports the latter by `allocatable` below `capacity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rljob.api.quantity import quantity
from rljob.core.observed import Manifest

NAMED_NODES = 4
"""Number of nodes named in a sentence; the others are counted."""


def node_sentences(nodes: Sequence[Manifest], resources: frozenset[str]) -> Iterator[str]:
    """Report what is wrong with the nodes that have these devices."""
    having = [node for node in nodes if any(amount(node, "capacity", name) for name in resources)]
    if resources and not having:
        yield f"No node has {' or '.join(sorted(resources))}; check that the device plug-in runs."
    faults = (
        ("not ready", [_name(node) for node in having if not _is_ready(node)]),
        ("cordoned", [_name(node) for node in having if (node.get("spec") or {}).get("unschedulable")]),
        ("with faulty devices", [text for node in having if (text := _faulty(node, resources))]),
    )
    parts = [f"{_some(names)} {what}" for what, names in faults if names]
    if parts:
        yield f"Of the {len(having)} nodes with such devices, {'; '.join(parts)}."


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_NODES} more" if len(names) > NAMED_NODES else ""
    return f"{', '.join(names[:NAMED_NODES])}{more}"


def _faulty(node: Manifest, resources: frozenset[str]) -> str:
    for name in sorted(resources):
        offered, there = amount(node, "allocatable", name), amount(node, "capacity", name)
        if offered < there:
            return f"{_name(node)} ({offered} of {there} usable)"
    return ""


def amount(node: Manifest, kind: str, resource: str) -> int:
    """Return how much of a resource a node has, by `capacity` or `allocatable`."""
    return int(quantity(str(((node.get("status") or {}).get(kind) or {}).get(resource, 0))))


def _is_ready(node: Manifest) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or ()
    return any(found["type"] == "Ready" and found["status"] == "True" for found in conditions)


def _name(node: Manifest) -> str:
    return str(node["metadata"]["name"])
