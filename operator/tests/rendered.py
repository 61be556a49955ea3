"""Every object that the operator creates for a manifest, for tests that compare or read all of them."""

from __future__ import annotations

import json

from builders import BUILT_IN_RECIPES, UID, Json, validate

from rljob.core.manifest_facts import identity
from rljob.launchers import LAUNCHER
from rljob.render import configmap
from rljob.render.export import build_export
from rljob.render.initializer import build_initializer, initializers
from rljob.render.names import export_name
from rljob.render.network_policy import build_network_policy
from rljob.render.podgroup import NEWEST_FIELDS
from rljob.render.ports import PortBlock
from rljob.render.raycluster import build_token_secret

BLOCK = PortBlock(20_000)
GENERATION = 1


def render(manifest: Json) -> list[Json]:
    """Return every object that the operator creates for a job, in order of creation."""
    job = identity(manifest | {"metadata": {"namespace": "team", "uid": UID} | manifest["metadata"]})
    checked = validate(job.name, manifest["spec"], BUILT_IN_RECIPES)
    spec, violations = checked.spec, checked.violations
    assert spec is not None, violations
    block = BLOCK if spec.network.mode == "Host" else None
    job_config = LAUNCHER(spec).job_config(job, spec, GENERATION)
    found = configmap.Circumstances(block=block, pod_group_fields=NEWEST_FIELDS)
    config = configmap.build_cluster_config(job, spec, GENERATION, job_config, found)
    cluster = config["data"].pop(configmap.RAYCLUSTER_KEY)
    group = config["data"].pop(configmap.POD_GROUP_KEY, None)
    services = json.loads(config["data"].pop(configmap.SERVICES_KEY, "[]"))
    # Shown as an object for readability; a unit test checks that the text in the ConfigMap is canonical.
    config["data"][configmap.RAYCLUSTER_KEY] = "the RayCluster below"
    if group is not None:
        config["data"][configmap.POD_GROUP_KEY] = "the PodGroup below"
    if services:
        config["data"][configmap.SERVICES_KEY] = "the objects of shared services below"
    return [
        configmap.build_snapshot(job, configmap.Snapshot(spec), GENERATION),
        *(build_initializer(job, spec, initializer) for initializer in initializers(spec)),
        build_token_secret(job, GENERATION),
        config,
        {"job.json": json.loads(config["data"][configmap.JOB_KEY])},
        *services,
        *([json.loads(group)] if group is not None else []),
        *([policy] if (policy := build_network_policy(json.loads(cluster))) is not None else []),
        json.loads(cluster),
        *(
            []
            if spec.export is None
            else [build_export(job, spec, spec.export, export_name(job, 10, "golden"), 10, None)]
        ),
    ]
