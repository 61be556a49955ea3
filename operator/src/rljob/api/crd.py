"""The CustomResourceDefinitions, generated from the types; `make generate` writes them to crds/.

The first printer columns show a job's health in `kubectl get rlj`; details are in the wide columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rljob.api.base import RULES
from rljob.api.schema import structural_schema
from rljob.api.sizes import size_rule
from rljob.api.status import RLJobStatus
from rljob.api.v1alpha1 import GROUP, LIVE_RULES, NAME_RULES, NOT_IN_A_RECIPE, VERSION, RecipeSpec, RLJobSpec


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


RECIPE_COLUMNS = [
    _column("Hardware", ".spec.hardware"),
    _column("Recipe", ".spec.recipeRef.name"),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _column("Description", ".spec.description", wide=True),
]


@dataclass(frozen=True)
class CrdFacts:
    """The properties that distinguish the CRDs from each other."""

    kind: str
    plural: str
    scope: str
    short_name: str
    description: str


RLJOB_FACTS = CrdFacts("RLJob", "rljobs", "Namespaced", "rlj", "RLJob trains one model by reinforcement learning.")
RECIPE_FACTS = (
    CrdFacts("RLRecipe", "rlrecipes", "Namespaced", "rlr", "RLRecipe holds defaults for the RLJobs of its namespace."),
    CrdFacts(
        "ClusterRLRecipe",
        "clusterrlrecipes",
        "Cluster",
        "crlr",
        "ClusterRLRecipe holds defaults for RLJobs of every namespace.",
    ),
)


def build_crds() -> tuple[dict[str, Any], ...]:
    """Return every CRD of the group as a manifest."""
    return (build_rljob_crd(), *(build_recipe_crd(facts) for facts in RECIPE_FACTS))


def build_rljob_crd() -> dict[str, Any]:
    """Return the CRD of RLJob."""
    spec = structural_schema(RLJobSpec)
    spec[RULES] = [*spec.get(RULES, ()), *LIVE_RULES, size_rule(spec)]
    schema = _object_schema(RLJOB_FACTS, {"spec": spec, "status": structural_schema(RLJobStatus)})
    schema[RULES] = NAME_RULES
    return _crd(RLJOB_FACTS, schema, COLUMNS, subresources={"status": {}})


def build_recipe_crd(facts: CrdFacts) -> dict[str, Any]:
    """Return the CRD of one kind of recipe."""
    spec = structural_schema(RecipeSpec)
    template = spec["properties"]["template"]
    for path in NOT_IN_A_RECIPE:
        *sections, name = path.split(".")
        place = template
        for section in sections:
            place = place["properties"][section]
        del place["properties"][name]
    spec[RULES] = [size_rule(spec)]
    return _crd(facts, _object_schema(facts, {"spec": spec}), RECIPE_COLUMNS)


def _object_schema(facts: CrdFacts, properties: dict[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "description": facts.description,
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            **properties,
        },
    }


def _crd(
    facts: CrdFacts, schema: dict[str, Any], columns: list[dict[str, Any]], subresources: dict[str, Any] | None = None
) -> dict[str, Any]:
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        **({"subresources": subresources} if subresources else {}),
        "additionalPrinterColumns": columns,
        "schema": {"openAPIV3Schema": schema},
    }
    names = {
        "kind": facts.kind,
        "listKind": f"{facts.kind}List",
        "plural": facts.plural,
        "singular": facts.kind.lower(),
        "shortNames": [facts.short_name],
        "categories": ["rl"],
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{facts.plural}.{GROUP}"},
        "spec": {"group": GROUP, "scope": facts.scope, "names": names, "versions": [version]},
    }
