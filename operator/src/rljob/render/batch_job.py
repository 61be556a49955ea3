"""A Kubernetes Job of an RLJob, without NPUs: an initializer, or an export. It has the volumes of the Ray pods."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.render import pods
from rljob.render.device_access import deny_devices
from rljob.render.metadata import child_metadata, job_labels
from rljob.render.names import JobIdentity

Container = dict[str, Any]


@dataclass(frozen=True)
class BatchJob:
    """What differs between the Jobs of one RLJob."""

    name: str
    intent: str
    marks: dict[str, str]
    """Labels of the Job and of its pods."""
    container: Container
    retries: int
    timeout_seconds: int
    init_containers: tuple[Container, ...] = ()
    volumes: tuple[dict[str, Any], ...] = ()
    """In addition to those of the workers."""
    more: dict[str, Any] = field(default_factory=dict)
    """Further fields of the Job's spec."""


def build_batch_job(job: JobIdentity, spec: RLJobSpec, what: BatchJob) -> dict[str, Any]:
    """Return the Job."""
    template = spec.trainer_group.template
    first = list(what.init_containers)
    pod = {
        "restartPolicy": "Never",
        "automountServiceAccountToken": False,
        "nodeSelector": dict(template.node_selector),
        "tolerations": [t.model_dump(by_alias=True, exclude_none=True) for t in template.tolerations],
        **pods.node_affinity(template.affinity),
        **pods.identity(spec, template),
        "volumes": [*pods.user_volumes(template), *what.volumes],
        **({"initContainers": first} if first else {}),
        "containers": [what.container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": child_metadata(job, what.name, what.intent, what.marks),
        "spec": {
            "backoffLimit": what.retries,
            "activeDeadlineSeconds": what.timeout_seconds,
            **what.more,
            "template": {
                "metadata": {"labels": job_labels(job) | what.marks},
                "spec": deny_devices(spec, pod),
            },
        },
    }
