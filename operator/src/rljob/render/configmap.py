"""The immutable ConfigMaps: the spec that a job uses, and what is frozen per cluster generation.

A snapshot contains the merged spec and the unmerged recipes. A later edit of the job is merged over these recipes, so
that edits of recipes do not enter with it. The snapshot is named by the cluster generation that took it.

`<cluster>` contains job.json and small texts, which the pods mount, and raycluster.json (with Volcano, podgroup.json
too; with shared services, services.json), from which these objects are created: an operator that is upgraded between
the two creates what its predecessor rendered. If no step lies between spec and cluster, the same ConfigMap is also the
snapshot, which saves a write per job.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api.launcher import READS, LauncherType
from rljob.api.lifecycle import Samples
from rljob.api.recipes import RecipeLayer, RecipeOrigin
from rljob.api.sources import ServicePlacement
from rljob.api.v1alpha1 import POLICY_ROLES, RecipeKind, RLJobSpec
from rljob.render import labels
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.metadata import canonical_json, child_metadata, digest
from rljob.render.names import JobIdentity, cluster_name, snapshot_name
from rljob.render.network_policy import isolate
from rljob.render.podgroup import Gang, build_pod_group, stated_gang
from rljob.render.ports import PortBlock
from rljob.render.raycluster import build_raycluster
from rljob.render.shared_services import build_shared_services
from rljob.render.stopping import cluster_files
from rljob_runtime.contract import JobConfig, parse_foreign_json

SPEC_KEY = "spec.json"
RECIPES_KEY = "recipes.json"
JOB_KEY = "job.json"
RAYCLUSTER_KEY = "raycluster.json"
POD_GROUP_KEY = "podgroup.json"
SERVICES_KEY = "services.json"
REMOVED = (("cleanup", "workersAfterSeconds"),)
"""Sections and fields of former specs that never had an effect."""


def spec_document(spec: RLJobSpec) -> dict[str, Any]:
    """Return the merged spec as JSON, with the defaults of every field that the job's launcher reads.

    `launcher` is left out where verl trains, `roles` of workers that train and generate, the placement of services in
    the pods, and samples by default, so that snapshots and hashes from before those fields remain valid; `trainer` is
    left out where the job states no number of steps.
    """
    document: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    if spec.launcher.type is LauncherType.VERL:
        del document["launcher"]
    for group in document["workerGroups"]:
        if set(group["roles"]) == set(POLICY_ROLES):
            del group["roles"]
    for service in document["services"]:
        if service["placement"] == ServicePlacement.POD:
            del service["placement"], service["replicas"]
    if spec.observability.samples == Samples():
        del document["observability"]["samples"]
    # Stand-ins and defaults of fields that the job does not have.
    document = READS[spec.launcher.type].part_of(document)
    if spec.total_steps is None:
        del document["trainer"]
    return document


@dataclass(frozen=True)
class Snapshot:
    """The spec that a job uses until the user requests another one."""

    spec: RLJobSpec
    """Merged with recipes and defaults."""
    recipes: tuple[RecipeLayer, ...] = ()
    """The recipes that the spec is based on, the base recipe first."""
    refresh: str | None = None
    """Value of the job's annotation `rljob.dev/refresh` when the recipes were read."""


def build_snapshot(job: JobIdentity, snapshot: Snapshot, generation: int) -> dict[str, Any]:
    """Return the ConfigMap with spec and recipes; `generation` is that of the first cluster that uses it."""
    metadata = child_metadata(job, snapshot_name(job, generation), f"spec/{generation}")
    return with_snapshot(_configmap(metadata, {}), snapshot)


def with_snapshot(manifest: dict[str, Any], snapshot: Snapshot) -> dict[str, Any]:
    """Add spec and recipes to a ConfigMap."""
    spec = spec_document(snapshot.spec)
    recipes = [_recipe_document(recipe) for recipe in snapshot.recipes]
    marks = {labels.SPEC_HASH: digest(spec), labels.RECIPES_HASH: digest(recipes)}
    if snapshot.refresh is not None:
        marks[labels.REFRESH] = snapshot.refresh
    metadata = manifest["metadata"] | {"annotations": manifest["metadata"]["annotations"] | marks}
    data = {SPEC_KEY: canonical_json(spec), RECIPES_KEY: canonical_json(recipes)}
    return manifest | {"metadata": metadata, "data": manifest["data"] | data}


def snapshot_part(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the snapshot of a ConfigMap, because the rest of a cluster's ConfigMap is many times larger."""
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
        **_locks(recipe),
    }


def recipe_hash(recipe: RecipeLayer) -> str:
    """Return SHA-256 of what a recipe contributes."""
    return digest({"template": recipe.template, "unset": list(recipe.unset), **_locks(recipe)})


def _locks(recipe: RecipeLayer) -> dict[str, list[str]]:
    """Return the locked fields; most recipes have none."""
    return {"locked": list(recipe.locked)} if recipe.locked else {}


@dataclass(frozen=True)
class Circumstances:
    """What a cluster generation is rendered from beside the spec."""

    avoided_nodes: tuple[str, ...] = ()
    """Nodes that its pods avoid."""
    block: PortBlock | None = None
    """Its ports, on the nodes' network."""
    gang: Gang | None = None
    """The scheduler that was chosen if the spec leaves it open."""
    pod_group_fields: frozenset[str] = frozenset()
    """The fields of a PodGroup's spec that the API server knows, if Volcano starts the pods."""
    spec_generation: int | None = None
    """The first generation that uses the spec; None: this one."""
    is_closed: bool = False
    """Whether the chart closes the ports of jobs in this namespace, so that the operator may do so for each."""


USUAL = Circumstances()


def build_cluster_config(
    job: JobIdentity,
    spec: RLJobSpec,
    generation: int,
    config: JobConfig,
    found: Circumstances = USUAL,
) -> dict[str, Any]:
    """Return the ConfigMap of a cluster generation."""
    gang, since = found.gang or stated_gang(spec), found.spec_generation or generation
    digest_of_job = config.digest()
    raycluster = build_raycluster(job, spec, generation, digest_of_job, found.avoided_nodes, found.block, gang, since)
    if found.is_closed:
        isolate(raycluster, spec)
    metadata = child_metadata(job, cluster_name(job, generation), f"cluster/{generation}")
    metadata["annotations"][labels.JOB_DIGEST] = digest_of_job
    data = {JOB_KEY: config.to_json().decode(), RAYCLUSTER_KEY: canonical_json(raycluster)}
    if gang is Gang.VOLCANO:
        data[POD_GROUP_KEY] = canonical_json(build_pod_group(job, spec, generation, raycluster, found.pod_group_fields))
    if services := build_shared_services(job, spec, since):
        data[SERVICES_KEY] = canonical_json(services)
    return _configmap(metadata, data | cluster_files(spec))


def read_snapshot(manifest: Any, accelerators: AcceleratorTable) -> Snapshot:  # noqa: ANN401 - a manifest
    """Read a snapshot. Raise KeyError, TypeError or ValueError if it is invalid.

    Its class may be missing in the table, if an administrator has removed the row since.
    """
    recipes = tuple(
        RecipeLayer(
            RecipeOrigin(RecipeKind(found["kind"]), found["name"], found["uid"], found["generation"]),
            _without_removed(found["template"]),
            tuple(found["unset"]),
            tuple(found.get("locked", ())),
        )
        for found in parse_foreign_json(manifest["data"][RECIPES_KEY])
    )
    # It contains every default, including those of fields that this version does not have.
    spec = RLJobSpec.model_validate_json(manifest["data"][SPEC_KEY], extra="ignore", context=accelerators)
    return Snapshot(spec, recipes, manifest["metadata"]["annotations"].get(labels.REFRESH))


def _without_removed(document: dict[str, Any]) -> dict[str, Any]:
    """Remove fields of former versions of the API, so that jobs that started with them continue."""
    for section, field in REMOVED:
        if field in document.get(section, ()):
            document[section].pop(field)
    return document


def read_raycluster(manifest: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest
    """Read the frozen RayCluster."""
    result: dict[str, Any] = parse_foreign_json(manifest["data"][RAYCLUSTER_KEY])
    return result


def read_pod_group(manifest: Any) -> dict[str, Any] | None:  # noqa: ANN401 - a manifest
    """Read the frozen PodGroup; None if this generation has none."""
    text = manifest["data"].get(POD_GROUP_KEY)
    result: dict[str, Any] | None = None if text is None else parse_foreign_json(text)
    return result


def read_services(manifest: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - a manifest
    """Read the frozen objects of shared services, in the order of their creation."""
    result: list[dict[str, Any]] = parse_foreign_json(manifest["data"].get(SERVICES_KEY, "[]"))
    return result


def _configmap(metadata: dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": data}
