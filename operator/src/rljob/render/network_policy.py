"""The NetworkPolicy of a cluster: its ports are open to its own pods only.

A cluster has one in the namespaces that the chart closes, and wherever its Ray has no token authentication. Ray asks
for its token, but not everything beside it does: TransferQueue 0.1.11, which verl starts in every run, unpickles what
any peer sends (transfer_queue/utils/serial_utils.py:419), and the engines' HTTP ports generate for anybody.

The policy is created before the RayCluster. The chart's policy that opens the ports of a namespace's jobs to each other
does not select these pods; the one for the operator and Prometheus does
(charts/rljob-operator/templates/networkpolicy.yaml).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rljob.api.base import Json
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render import labels

API_VERSION = "networking.k8s.io/v1"


def isolate(cluster: Mapping[str, Any], spec: RLJobSpec) -> None:
    """Mark the pods of a rendered cluster for a policy of its own; on the nodes' network, none would hold."""
    if spec.network.mode == "Host":
        return
    for group in (cluster["spec"]["headGroupSpec"], *cluster["spec"]["workerGroupSpecs"]):
        group["template"]["metadata"]["labels"][labels.ISOLATED] = "true"


def _head_labels(cluster: Mapping[str, Any]) -> Mapping[str, str]:
    found: Mapping[str, str] = cluster["spec"]["headGroupSpec"]["template"]["metadata"].get("labels") or {}
    return found


def build_network_policy(cluster: Mapping[str, Any]) -> Json | None:
    """Return the policy for the pods of a rendered cluster; None if it has none."""
    if "authOptions" in cluster["spec"] and labels.ISOLATED not in _head_labels(cluster):
        return None
    metadata = cluster["metadata"]
    mark = {labels.JOB_UID: metadata["labels"][labels.JOB_UID]}
    # What a service runs is often code that a model wrote: it reaches no Ray that checks nothing.
    no_service = {"key": labels.SERVICE, "operator": "DoesNotExist"}
    own_pods: dict[str, Any] = {"podSelector": {"matchLabels": mark, "matchExpressions": [no_service]}}
    return {
        "apiVersion": API_VERSION,
        "kind": "NetworkPolicy",
        "metadata": {
            **{name: metadata[name] for name in ("name", "namespace")},
            "labels": {name: metadata["labels"][name] for name in (labels.JOB, labels.JOB_UID)},
            "annotations": {name: metadata["annotations"][name] for name in (labels.INTENT, labels.RENDERER)},
            "ownerReferences": copy.deepcopy(metadata["ownerReferences"]),
        },
        "spec": {**own_pods, "policyTypes": ["Ingress"], "ingress": [{"from": [copy.deepcopy(own_pods)]}]},
    }
