"""The Job that exports a checkpoint: the job's image, its volumes and verl's converter, without NPUs.

It gets the variables of the workers, for proxies, but no Secret except that of its target.
"""

from __future__ import annotations

import math
from typing import Any

from rljob.api.export import Export, ExportTarget, Hub
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render import injection, labels, pods, resources
from rljob.render.batch_job import BatchJob, build_batch_job
from rljob.render.env import without_device
from rljob.render.names import JobIdentity
from rljob.render.security import PodSecurity
from rljob_runtime.contract import ExitCode, ExportPlace, ExportRequest, PodVariable

CONTAINER = "export"
CLAIM_VOLUME = "rljob-export"
CLAIM_FOLDER = "/rljob-export"
TOKEN_KEY = "token"  # noqa: S105 - the name of a key
KEPT_SECONDS = 24 * 3600
"""How long an ended Job and its log stay."""

_RUN = 'exec "$@"\n'
_PROGRAM = ["python", "-m", "rljob_runtime", "export"]


def build_export(
    job: JobIdentity, spec: RLJobSpec, export: Export, name: str, step: int, memory_bytes: int | None
) -> dict[str, Any]:
    """Return the Job. `memory_bytes`: what the conversion needs, if it is known; step 0 is the best one."""
    if spec.checkpoint is None:
        raise AssertionError("validation lets no export without a checkpoint pass")
    template = spec.trainer_group.template
    security = PodSecurity.of(spec, template)
    memory = export.memory or (None if memory_bytes is None else f"{math.ceil(memory_bytes / resources.MEBIBYTE)}Mi")
    request = _request(job, spec, export.to, step).to_json().decode()
    script = injection.IMAGE_ENVIRONMENT + (injection.SHELL_TEXT if spec.runtime.injected_image else "") + _RUN
    container = {
        "name": CONTAINER,
        "image": spec.runtime.image,
        "imagePullPolicy": spec.runtime.image_pull_policy,
        "command": ["bash", "-c", script, CONTAINER, *_PROGRAM, request],
        "env": pods.environment(_token(export.to), pods.user_env(template.env), without_device(spec)),
        **_server_variables(export.to),
        "resources": pods.resources(export.cpu, memory),
        "volumeMounts": [*pods.user_mounts(template), *injection.mounts(spec), *_claim_mounts(export.to)],
        **pods.LAST_LINES,
        **security.user_image_with_own_program(),
    }
    resources.complete(container, resources.EXPORT)
    what = BatchJob(
        name=name,
        intent=f"export/{name}",
        marks={labels.EXPORT: name},
        container=container,
        retries=export.retries,
        timeout_seconds=export.timeout_seconds,
        init_containers=tuple(injection.init_containers(spec, security)),
        volumes=(*injection.volumes(spec), *_claim_volumes(export.to)),
        more={"ttlSecondsAfterFinished": KEPT_SECONDS, **_give_up_on_bad_requests()},
    )
    return build_batch_job(job, spec, what)


def _give_up_on_bad_requests() -> dict[str, Any]:
    """Make no other try if none can help, and count no pod that was evicted.

    https://kubernetes.io/docs/tasks/job/pod-failure-policy/
    """
    codes = {"containerName": CONTAINER, "operator": "In", "values": [int(ExitCode.BAD_CONFIG)]}
    evicted = [{"type": "DisruptionTarget", "status": "True"}]
    rules = [{"action": "FailJob", "onExitCodes": codes}, {"action": "Ignore", "onPodConditions": evicted}]
    return {"podFailurePolicy": {"rules": rules}}


def _request(job: JobIdentity, spec: RLJobSpec, target: ExportTarget, step: int) -> ExportRequest:
    place = {"Path": ExportPlace.FOLDER, "PVC": ExportPlace.FOLDER}.get(target.type) or ExportPlace(target.type)
    hub, server = hub_of(target), target.mlflow
    return ExportRequest(
        namespace=job.namespace,
        job=job.name,
        uid=job.uid,
        checkpoint=spec.checkpoint.path if spec.checkpoint else "",
        step=step,
        place=place,
        folder=CLAIM_FOLDER if target.persistent_volume_claim else target.path or "",
        repository=hub.repository if hub else "",
        private=hub is None or hub.visibility == "Private",
        address=(hub.endpoint if hub else server.tracking_url if server else None) or "",
        experiment=server.experiment if server else "",
        trust_remote_code=bool(spec.model.trust_remote_code),
    )


def hub_of(target: ExportTarget) -> Hub | None:
    """Return the repository of a target that is one."""
    return target.hugging_face or target.model_scope


def target_text(target: ExportTarget) -> str:
    """Return where exports go, in a few words."""
    if target.persistent_volume_claim is not None:
        claim = target.persistent_volume_claim
        return f"pvc {claim.claim_name}:/{claim.sub_path or ''}"
    if (hub := hub_of(target)) is not None:
        return f"{target.type} {hub.repository}"
    return f"MLflow {target.mlflow.experiment}" if target.mlflow else target.path or ""


def shown_path(target: ExportTarget, path: str) -> str:
    """Return where an export is; the export itself does not know which claim it wrote to."""
    if target.persistent_volume_claim is None or not path.startswith(f"{CLAIM_FOLDER}/"):
        return path
    return f"{target_text(target).rstrip('/')}/{path.removeprefix(f'{CLAIM_FOLDER}/')}"


def _token(target: ExportTarget) -> list[dict[str, Any]]:
    hub = hub_of(target)
    if hub is None:
        return []
    source = {"name": hub.secret_ref.name, "key": TOKEN_KEY}
    return [{"name": PodVariable.EXPORT_TOKEN.value, "valueFrom": {"secretKeyRef": source}}]


def _server_variables(target: ExportTarget) -> dict[str, Any]:
    if target.mlflow is None or target.mlflow.secret_ref is None:
        return {}
    return {"envFrom": [{"secretRef": {"name": target.mlflow.secret_ref.name}}]}


def _claim_volumes(target: ExportTarget) -> list[dict[str, Any]]:
    claim = target.persistent_volume_claim
    if claim is None:
        return []
    return [{"name": CLAIM_VOLUME, "persistentVolumeClaim": {"claimName": claim.claim_name}}]


def _claim_mounts(target: ExportTarget) -> list[dict[str, Any]]:
    claim = target.persistent_volume_claim
    if claim is None:
        return []
    mount = {"name": CLAIM_VOLUME, "mountPath": CLAIM_FOLDER}
    return [mount | {"subPath": claim.sub_path} if claim.sub_path else mount]
