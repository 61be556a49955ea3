"""What the operator would create for an RLJob. Pure.

The UID of a job exists only after its creation; until then names and references show a placeholder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rljob.api import yaml11
from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.status import table
from rljob.core.launcher import LauncherOf
from rljob.core.observed import Manifest
from rljob.reading.figures import ABSENT
from rljob.render.initializer import build_initializer, initializers
from rljob.render.names import JobIdentity
from rljob.render.network_policy import build_network_policy
from rljob.render.podgroup import NEWEST_FIELDS, Gang, build_pod_group, stated_gang
from rljob.render.raycluster import build_raycluster
from rljob.render.shared_services import build_shared_services

FIRST_GENERATION = 1


@dataclass(frozen=True)
class Rendered:
    """What the operator creates for one job."""

    objects: tuple[Manifest, ...]
    job_json: Mapping[str, Any] | None
    """Content of job.json; None where it was not asked for."""

    @property
    def documents(self) -> list[Any]:
        """Everything, as data."""
        return [*self.objects, *([self.job_json] if self.job_json is not None else [])]

    @property
    def page(self) -> str:
        """Everything as YAML, with job.json as JSON."""
        pages = [yaml11.dump_all([manifest]).rstrip("\n") for manifest in self.objects]
        if self.job_json is not None:
            text = json.dumps(self.job_json, indent=2, ensure_ascii=False)
            pages.append(f"# job.json, as mounted in the pods\n{text}" if pages else text)
        return "\n---\n".join(pages)


def object_table(objects: Sequence[Manifest], *, wide: bool) -> str:
    """Return the table of objects, without what is in them."""
    rows = [("KIND", "NAME", *(("NAMESPACE", "API VERSION") if wide else ()))]
    for found in objects:
        more = (str(found["metadata"].get("namespace", ABSENT)), str(found["apiVersion"])) if wide else ()
        rows.append((str(found["kind"]), str(found["metadata"]["name"]), *more))
    return table(rows)


def render(job: JobIdentity, spec: RLJobSpec, part: str, launcher: LauncherOf) -> Rendered:
    """Return every object and job.json; or only the RayCluster, or only job.json."""
    config = launcher(spec).job_config(job, spec, FIRST_GENERATION)
    job_json = json.loads(config.to_json())
    made = build_raycluster(job, spec, FIRST_GENERATION, config.digest())
    if part == "job":
        return Rendered((), job_json)
    if part == "raycluster":
        return Rendered((made,), None)
    first = [build_initializer(job, spec, initializer) for initializer in initializers(spec)]
    if stated_gang(spec) is Gang.VOLCANO:
        first.append(build_pod_group(job, spec, FIRST_GENERATION, made, NEWEST_FIELDS))
    first += build_shared_services(job, spec, FIRST_GENERATION)
    if (policy := build_network_policy(made)) is not None:
        first.append(policy)
    return Rendered((*first, made), job_json)
