"""What the operator would create for an RLJob. Pure: takes a manifest and returns text.

The UID of a job exists only after its creation; until then names and references show a placeholder.
"""

from __future__ import annotations

import json
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli import yaml11
from rljob.core.launcher import Launcher
from rljob.render.initializer import build_initializer, initializers
from rljob.render.names import JobIdentity
from rljob.render.podgroup import NEWEST_FIELDS, Gang, build_pod_group, stated_gang
from rljob.render.raycluster import build_raycluster

STAND_IN_UID = "00000000-0000-0000-0000-000000000000"
FIRST_GENERATION = 1


def render(job: JobIdentity, spec: RLJobSpec, part: str, launcher: Launcher) -> str:
    """Return every object as YAML and job.json; or only the RayCluster, or only job.json."""
    config = launcher.job_config(job, spec, FIRST_GENERATION)
    job_json = json.dumps(json.loads(config.to_json()), indent=2, ensure_ascii=False)
    made = build_raycluster(job, spec, FIRST_GENERATION, config.digest())
    cluster = _yaml(made)
    first = [_yaml(build_initializer(job, spec, initializer)) for initializer in initializers(spec)]
    if part == "job":
        return job_json
    if part == "raycluster":
        return cluster
    if stated_gang(spec) is Gang.VOLCANO:
        first.append(_yaml(build_pod_group(job, spec, FIRST_GENERATION, made, NEWEST_FIELDS)))
    return "\n---\n".join([*first, cluster, f"# job.json, as mounted in the pods\n{job_json}"])


def _yaml(manifest: dict[str, Any]) -> str:
    return yaml11.dump_all([manifest]).rstrip("\n")
