"""The NetworkPolicy of a cluster whose Ray has no token authentication: its ports are open to its own pods only.

It is created before the RayCluster. The policy that opens the ports of a namespace's jobs to each other does not select
these pods; the one for the operator and Prometheus does (charts/rljob-operator/templates/networkpolicy.yaml).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from rljob.api.base import Json
from rljob.render import labels

API_VERSION = "networking.k8s.io/v1"


def build_network_policy(cluster: Mapping[str, Any]) -> Json | None:
    """Return the policy for the pods of a rendered cluster; None if its Ray checks tokens."""
    if "authOptions" in cluster["spec"]:
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
