"""The immutable ConfigMaps: the merged spec of a job, and what is frozen of a cluster generation.

`<cluster>` holds job.json, which the pods mount, and raycluster.json, from which the RayCluster is made: an operator
that is upgraded between the two makes the cluster that its predecessor rendered.
"""

from __future__ import annotations

import json
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.build import labels
from rljob.build.metadata import canonical_json, child_metadata, digest
from rljob.build.names import JobIdentity, cluster_name, snapshot_name
from rljob.build.raycluster import build_raycluster
from rljob_runtime.contract import JobConfig

SPEC_KEY = "spec.json"
JOB_KEY = "job.json"
RAYCLUSTER_KEY = "raycluster.json"


def spec_document(spec: RLJobSpec) -> dict[str, Any]:
    """The merged spec as JSON, with every default spelled out."""
    document: dict[str, Any] = spec.model_dump(mode="json", by_alias=True, exclude_none=True)
    return document


def build_snapshot(job: JobIdentity, spec: RLJobSpec) -> dict[str, Any]:
    """Give the ConfigMap with the merged spec."""
    document = spec_document(spec)
    metadata = child_metadata(job, snapshot_name(job), "spec")
    metadata["annotations"][labels.SPEC_HASH] = digest(document)
    return _configmap(metadata, {SPEC_KEY: canonical_json(document)})


def build_cluster_config(job: JobIdentity, spec: RLJobSpec, generation: int, config: JobConfig) -> dict[str, Any]:
    """Give the ConfigMap of a cluster generation."""
    raycluster = build_raycluster(job, spec, generation, config.digest())
    metadata = child_metadata(job, cluster_name(job, generation), f"cluster/{generation}")
    metadata["annotations"][labels.JOB_DIGEST] = config.digest()
    data = {JOB_KEY: config.to_json().decode(), RAYCLUSTER_KEY: canonical_json(raycluster)}
    return _configmap(metadata, data)


def read_snapshot(manifest: Any) -> RLJobSpec:  # noqa: ANN401 - a manifest
    """Read the merged spec back."""
    return RLJobSpec.model_validate_json(manifest["data"][SPEC_KEY])


def read_raycluster(manifest: Any) -> dict[str, Any]:  # noqa: ANN401 - a manifest
    """Read the frozen RayCluster back."""
    result: dict[str, Any] = json.loads(manifest["data"][RAYCLUSTER_KEY])
    return result


def _configmap(metadata: dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "immutable": True, "data": data}
