"""Explain why no node takes a pod, from the scheduler's message and the state of the nodes. Pure.

`rljob describe` shows both. The scheduler gives one reason per node. Its message does not show which nodes are
cordoned, not ready or offer fewer devices than they have, which a device plug-in reports by `allocatable` below
`capacity`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from rljob.api.quantity import quantity
from rljob.core.observed import Manifest

NAMED_NODES = 4
"""Number of nodes named in a sentence; the others are counted."""
_REASON = re.compile(r"(?:^|, )(\d+) ((?:[^,{]|\{[^}]*\})+)")
REASONS: tuple[tuple[str, str], ...] = (
    (r"Insufficient (\S+)", "{count} with too little {0} free"),
    (
        r"node\(s\) had untolerated taint(?:\(s\))?(?: (\{[^}]*\}))?",
        "{count} with an untolerated taint {0}",
    ),
    (
        r"node\(s\) didn't (?:match|satisfy) [Pp]od's node affinity",
        "{count} of another class, or without a required label",
    ),
    (r"node\(s\) were unschedulable", "{count} cordoned"),
    (r"node\(s\) had volume node affinity conflict", "{count} that cannot mount one of its volumes"),
    (r"node\(s\) didn't match pod affinity", "{count} outside of the domain of its other pods"),
    (r"node\(s\) didn't match pod anti-affinity", "{count} with a pod that it must not share a node with"),
    (r"node\(s\) didn't have free ports", "{count} where one of its ports is in use"),
)
"""Messages of kube-scheduler's plug-ins (kubernetes v1.36.2, pkg/scheduler/framework/plugins), and their meaning."""
CLAIMS: tuple[tuple[str, str], ...] = (
    (
        r'persistentvolumeclaim "([^"]+)" not found',
        "The PersistentVolumeClaim {0} does not exist in the namespace; create it, or correct runtime.volumes.",
    ),
    (
        r'persistentvolumeclaim "([^"]+)" is being deleted',
        "The PersistentVolumeClaim {0} is being deleted; create a claim, or name another one in the RLJob.",
    ),
    (
        r'persistentvolumeclaim "([^"]+)" bound to non-existent persistentvolume "([^"]+)"',
        "The volume {1} of the PersistentVolumeClaim {0} no longer exists; create a claim with a new volume.",
    ),
    (
        r"pod has unbound immediate PersistentVolumeClaims",
        "A PersistentVolumeClaim of the pod has no volume; `kubectl get pvc` shows which, `kubectl describe pvc` why.",
    ),
)
"""Messages about all nodes (volumebinding/volume_binding.go, podHasPVCs and PreFilter), and what to do."""


def scheduler_sentences(said: str) -> Iterator[str]:
    """Translate `0/12 nodes are available: 3 Insufficient …, 9 node(s) …`; unknown reasons are quoted."""
    plain = " ".join(said.split())
    head, colon, rest = plain.partition(" nodes are available: ")
    about_claim = _claim_sentence(rest if colon else plain)
    if about_claim:
        yield about_claim
        return
    if not colon:
        yield f"The scheduler reports: {plain.rstrip('.')}."
        return
    # The rest describes preemption and resource claims, which did not help, or there would be no message.
    reasons = re.split(r"\. |,? preemption: ", rest)[0].rstrip(".")
    translated = [_translate(count, reason) for count, reason in _REASON.findall(reasons)]
    detail = "; ".join(translated) if translated else reasons
    yield f"None of {head.rpartition('/')[2]} nodes can run the next pod: {detail}."


def _claim_sentence(reason: str) -> str:
    """Return what is wrong with a claim of the pod, which is the same for all nodes; empty if nothing is."""
    for pattern, text in CLAIMS:
        if found := re.match(pattern, reason):
            return text.format(*found.groups())
    return ""


def _translate(count: str, reason: str) -> str:
    for pattern, text in REASONS:
        if found := re.match(pattern, reason):
            return text.format(*(group or "" for group in found.groups()), count=count).strip()
    return f"{count} {reason}".strip()


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
