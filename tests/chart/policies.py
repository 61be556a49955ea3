"""A small evaluator of NetworkPolicies: whether one pod may connect to another.

It implements the rules of https://kubernetes.io/docs/concepts/services-networking/network-policies/ for ingress: a pod
that no policy selects accepts everything; a selected pod accepts what any of its policies allows. The network of the
local cluster does not enforce policies, so they are evaluated here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Policy = Mapping[str, Any]


@dataclass(frozen=True)
class Pod:
    """One end of a connection."""

    namespace: str
    labels: Mapping[str, str]
    ports: Mapping[str, int] = field(default_factory=dict)
    """Named container ports."""


def is_allowed(policies: Iterable[Policy], source: Pod, target: Pod, port: int) -> bool:
    """Return whether a TCP connection from one pod to a port of another is allowed."""
    selecting = [policy for policy in policies if _selects(policy, target)]
    if not selecting:
        return True
    return any(
        _from(rule, policy["metadata"]["namespace"], source) and _to(rule, target, port)
        for policy in selecting
        for rule in policy["spec"].get("ingress") or ()
    )


def _selects(policy: Policy, pod: Pod) -> bool:
    spec = policy["spec"]
    ingress = "Ingress" in spec.get("policyTypes", ["Ingress"])
    return ingress and policy["metadata"]["namespace"] == pod.namespace and matches(spec["podSelector"], pod.labels)


def _from(rule: Mapping[str, Any], namespace: str, source: Pod) -> bool:
    peers = rule.get("from")
    return not peers or any(_is_peer(peer, namespace, source) for peer in peers)


def _is_peer(peer: Mapping[str, Any], namespace: str, source: Pod) -> bool:
    if "ipBlock" in peer:
        raise NotImplementedError("the chart's policies contain no addresses")
    if "namespaceSelector" in peer:
        home = {"kubernetes.io/metadata.name": source.namespace}
        if not matches(peer["namespaceSelector"], home):
            return False
    elif source.namespace != namespace:
        return False
    return matches(peer.get("podSelector") or {}, source.labels)


def _to(rule: Mapping[str, Any], target: Pod, port: int) -> bool:
    listed = rule.get("ports")
    return not listed or any(target.ports.get(each["port"], each["port"]) == port for each in listed)


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Return whether a label selector matches these labels; an empty one matches everything."""
    exact = all(labels.get(name) == value for name, value in (selector.get("matchLabels") or {}).items())
    return exact and all(_holds(entry, labels) for entry in selector.get("matchExpressions") or ())


def _holds(entry: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    name, values = entry["key"], entry.get("values") or ()
    match entry["operator"]:
        case "Exists":
            return name in labels
        case "DoesNotExist":
            return name not in labels
        case "In":
            return labels.get(name) in values
        case "NotIn":
            return labels.get(name) not in values
        case other:
            raise ValueError(other)
