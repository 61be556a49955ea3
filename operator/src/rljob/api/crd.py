"""The CustomResourceDefinition of RLJob, generated from the types; `make generate` writes it to crds/.

Printer columns are what a user sees of a job in `kubectl get rlj`: the first row suffices to know how it goes.
"""

from __future__ import annotations

from typing import Any

from rljob.api.base import RULES
from rljob.api.schema import structural_schema
from rljob.api.status import RLJobStatus
from rljob.api.v1alpha1 import GROUP, NAME_RULES, VERSION, RLJobSpec


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> dict[str, Any]:
    return {"name": name, "jsonPath": path, "type": kind} | ({"priority": 1} if wide else {})


COLUMNS = [
    _column("State", ".status.state"),
    _column("Step", ".status.progress.summary"),
    _column("Reward", ".status.progress.reward"),
    _column("TPS/card", ".status.progress.tokensPerSecondPerCard"),
    _column("Restarts", ".status.restarts", "integer"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("RayCluster", ".status.rayCluster.name", wide=True),
    _column("Reason", ".status.reason", wide=True),
    _column("Queue", ".spec.scheduling.queueName", wide=True),
    _column("Message", ".status.message", wide=True),
]


def build_rljob_crd() -> dict[str, Any]:
    """Give the CRD as a manifest."""
    schema = {
        "type": "object",
        "description": "RLJob trains one model by reinforcement learning.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural_schema(RLJobSpec),
            "status": structural_schema(RLJobStatus),
        },
        RULES: NAME_RULES,
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "additionalPrinterColumns": COLUMNS,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {
        "kind": "RLJob",
        "listKind": "RLJobList",
        "plural": "rljobs",
        "singular": "rljob",
        "shortNames": ["rlj"],
        "categories": ["rl"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"rljobs.{GROUP}"},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
