"""The Job of one initializer: it sees the same volumes and code as the Ray pods and holds no NPU."""

from __future__ import annotations

from typing import Any

from rljob.api.sources import Initializer
from rljob.api.v1alpha1 import RLJobSpec
from rljob.build import labels, pods
from rljob.build.metadata import child_metadata, job_labels
from rljob.build.names import JobIdentity, initializer_name


def build_initializer(job: JobIdentity, spec: RLJobSpec, initializer: Initializer) -> dict[str, Any]:
    """Give the Job."""
    template = spec.worker_groups[0].template
    name, marks = initializer_name(job, initializer.name), {labels.INITIALIZER: initializer.name}
    container = {
        "name": "initializer",
        "image": initializer.image or spec.runtime.image,
        "imagePullPolicy": spec.runtime.image_pull_policy,
        "command": list(initializer.command),
        "env": pods.user_env(template),
        "volumeMounts": pods.user_mounts(template) + pods.code_mounts(spec),
        # The reason of a failure reaches the RLJob's condition through the container's termination message.
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": child_metadata(job, name, f"initializer/{initializer.name}", marks),
        "spec": {
            "backoffLimit": initializer.retries,
            "activeDeadlineSeconds": initializer.timeout_seconds,
            "template": {
                "metadata": {"labels": job_labels(job) | marks},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "nodeSelector": dict(template.node_selector),
                    "tolerations": [t.model_dump(by_alias=True, exclude_none=True) for t in template.tolerations],
                    "volumes": pods.user_volumes(template) + pods.code_volumes(spec),
                    "containers": [container],
                    **pods.pull_secrets(spec),
                },
            },
        },
    }
