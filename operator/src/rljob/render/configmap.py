"""The immutable ConfigMaps: the spec that a job goes by, and what is frozen of a cluster generation.

A snapshot holds the merged spec and, raw, the recipes below it: a later edit of the job is merged over these, so that
a recipe's edit never comes in by that way. It is named by the cluster generation that took it.

`<cluster>` holds job.json and small texts, which the pods mount, and raycluster.json (with Volcano, podgroup.json too),
from which the RayCluster is made: an operator that is upgraded between the two makes the cluster that its predecessor
rendered. Where nothing comes between spec and cluster, it is the snapshot as well, which saves each such job a write.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api.recipes import RecipeLayer, RecipeOrigin
from rljob.api.v1alpha1 import RecipeKind, RLJobSpec
from rljob.render import labels
from rljob.render.metadata import canonical_json, child_metadata, digest
from rljob.render.names import JobIdentity, cluster_name, snapshot_name
from rljob.render.podgroup import Gang, build_pod_group, stated_gang
from rljob.render.ports import PortBlock
from rljob.render.raycluster import build_raycluster
from rljob.render.stopping import cluster_files
from rljob_runtime.contract import JobConfig

SPEC_KEY = "spec.json"
RECIPES_KEY = "recipes.json"
JOB_KEY = "job.json"
RAYCLUSTER_KEY = "raycluster.json"
POD_GROUP_KEY = "podgroup.json"
REMOVED = (("cleanup", "workersAfterSeconds"),)
"""Sections and fields of the spec that never had an effect."""


def spec_document(spec: RLJobSpec) -> dict[str, Any]:
    """The merged spec as JSON, with every default spelled out."""
    document: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


@dataclass(frozen=True)
class Snapshot:
    """What a job goes by until somebody asks for something else."""

    spec: RLJobSpec
    """With recipes and defaults."""
    recipes: tuple[RecipeLayer, ...] = ()
    """What the spec stands on, the lowest first."""
    refresh: str | None = None
    """Value of the job's annotation `rljob.dev/refresh` with which the recipes were read."""


def build_snapshot(job: JobIdentity, snapshot: Snapshot, generation: int) -> dict[str, Any]:
    """Give the ConfigMap with spec and recipes; `generation` is that of the cluster that takes it first."""
    metadata = child_metadata(job, snapshot_name(job, generation), f"spec/{generation}")
    return with_snapshot(_configmap(metadata, {}), snapshot)


def with_snapshot(manifest: dict[str, Any], snapshot: Snapshot) -> dict[str, Any]:
    """Give a ConfigMap with spec and recipes beside what it holds."""
    spec = spec_document(snapshot.spec)
    recipes = [_recipe_document(recipe) for recipe in snapshot.recipes]
    marks = {labels.SPEC_HASH: digest(spec), labels.RECIPES_HASH: digest(recipes)}
    if snapshot.refresh is not None:
        marks[labels.REFRESH] = snapshot.refresh
    metadata = manifest["metadata"] | {"annotations": manifest["metadata"]["annotations"] | marks}
    data = {SPEC_KEY: canonical_json(spec), RECIPES_KEY: canonical_json(recipes)}
    return manifest | {"metadata": metadata, "data": manifest["data"] | data}


def snapshot_part(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Give what of a ConfigMap is snapshot: the rest of a cluster's own is many times as long."""
    kept = {key: text for key, text in (manifest.get("data") or {}).items() if key in (SPEC_KEY, RECIPES_KEY)}
    return {**manifest, "data": kept}


def _recipe_document(recipe: RecipeLayer) -> dict[str, Any]:
    origin = recipe.origin
    return {
        "kind": origin.kind.value,
        "name": origin.name,
        "uid": origin.uid,
        "generation": origin.generation,
        "hash": recipe_hash(recipe),
        "template": recipe.template,
        "unset": list(recipe.unset),
    }


def recipe_hash(recipe: RecipeLayer) -> str:
    """SHA-256 of what a recipe contributes."""
    return digest({"template": recipe.template, "unset": list(recipe.unset)})


def build_cluster_config(
    job: JobIdentity,
    spec: RLJobSpec,
    generation: int,
    config: JobConfig,
    avoided_nodes: tuple[str, ...] = (),
    block: PortBlock | None = None,
    gang: Gang | None = None,
    pod_group_fields: frozenset[str] = frozenset(),
) -> dict[str, Any]:
    """Give the ConfigMap of a cluster generation, whose pods stay away from some nodes.

    `pod_group_fields`: what the API server knows of the spec of a PodGroup, for a gang of Volcano.
    """
    gang = gang or stated_gang(spec)
    raycluster = build_raycluster(job, spec, generation, config.digest(), avoided_nodes, block, gang)
    metadata = child_metadata(job, cluster_name(job, generation), f"cluster/{generation}")
    metadata["annotations"][labels.JOB_DIGEST] = config.digest()
    data = {JOB_KEY: config.to_json().decode(), RAYCLUSTER_KEY: canonical_json(raycluster)}
    if gang is Gang.VOLCANO:
        data[POD_GROUP_KEY] = canonical_json(build_pod_group(job, spec, generation, raycluster, pod_group_fields))
    return _configmap(metadata, data | cluster_files(spec))


def read_snapshot(manifest: Any) -> Snapshot:  # noqa: ANN401 - a manifest
    """Read a snapshot back; raises KeyError, TypeError or ValueError."""
    recipes = tuple(
        RecipeLayer(
            RecipeOrigin(RecipeKind(found["kind"]), found["name"], found["uid"], found["generation"]),
            _without_removed(found["template"]),
            tuple(found["unset"]),
        )
        for found in json.loads(manifest["data"][RECIPES_KEY])
    )
    # Every default is spelled out in it: of a later version, or an earlier one, also of fields that this one lacks.
    spec = RLJobSpec.model_validate_json(manifest["data"][SPEC_KEY], extra="ignore")
    return Snapshot(spec, recipes, manifest["metadata"]["annotations"].get(labels.REFRESH))


def _without_removed(document: dict[str, Any]) -> dict[str, Any]:
    """Drop fields that the API had once: a job that began with one goes on."""
    for section, field in REMOVED:
        if field in document.get(section, ()):
            document[section].pop(field)
    return document


def read_raycluster(manifest: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest
    """Read the frozen RayCluster back."""
    result: dict[str, Any] = json.loads(manifest["data"][RAYCLUSTER_KEY])
    return result


def read_pod_group(manifest: Any) -> dict[str, Any] | None:  # noqa: ANN401 - a manifest
    """Read the frozen PodGroup back; None: this generation has none."""
    text = manifest["data"].get(POD_GROUP_KEY)
    result: dict[str, Any] | None = None if text is None else json.loads(text)
    return result


def _configmap(metadata: dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": data}
