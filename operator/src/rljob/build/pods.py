"""Parts of pods that head, workers and initializers share: volumes, mounts and environment."""

from __future__ import annotations

from typing import Any

from rljob.api.pods import EnvVar, PodTemplate, Volume
from rljob.api.v1alpha1 import RLJobSpec

CODE_VOLUME = "rljob-code"


def code_volumes(spec: RLJobSpec) -> list[dict[str, Any]]:
    """The ConfigMap with the user's code, if any."""
    if spec.code.config_map is None:
        return []
    return [{"name": CODE_VOLUME, "configMap": {"name": spec.code.config_map.name}}]


def code_mounts(spec: RLJobSpec) -> list[dict[str, Any]]:
    """Where that code appears."""
    if spec.code.config_map is None:
        return []
    return [{"name": CODE_VOLUME, "mountPath": spec.code.mount_path, "readOnly": True}]


def user_volumes(*templates: PodTemplate) -> list[dict[str, Any]]:
    """Volumes of the templates; a later one of the same name wins."""
    merged: dict[str, Volume] = {volume.name: volume for template in templates for volume in template.volumes}
    # Defaults are spelled out: ours for hostPath.type is not that of Kubernetes.
    return [volume.model_dump(by_alias=True, exclude_none=True) for volume in merged.values()]


def user_mounts(*templates: PodTemplate) -> list[dict[str, Any]]:
    """Mounts of the templates; a later one of the same path wins."""
    merged = {mount.mount_path: mount for template in templates for mount in template.volume_mounts}
    return [mount.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True) for mount in merged.values()]


def user_env(template: PodTemplate) -> list[dict[str, Any]]:
    """The user's variables."""
    return [_variable(variable) for variable in template.env]


def _variable(variable: EnvVar) -> dict[str, Any]:
    if variable.value_from is None:
        return {"name": variable.name, "value": variable.value or ""}
    return variable.model_dump(by_alias=True, exclude_none=True)


def resources(template: PodTemplate, devices: dict[str, int]) -> dict[str, Any]:
    """Requests and limits: memory is bounded, CPU is not, devices are both (extended resources must be equal)."""
    requests: dict[str, Any] = {resource: str(count) for resource, count in devices.items()}
    limits = dict(requests)
    if template.cpu is not None:
        requests["cpu"] = template.cpu
    if template.memory is not None:
        requests["memory"] = limits["memory"] = template.memory
    return {"requests": requests, "limits": limits}


def pull_secrets(spec: RLJobSpec) -> dict[str, Any]:
    """Pull secrets and service account, where named."""
    result: dict[str, Any] = {}
    if spec.runtime.image_pull_secrets:
        result["imagePullSecrets"] = [{"name": name} for name in spec.runtime.image_pull_secrets]
    if spec.runtime.service_account_name is not None:
        result["serviceAccountName"] = spec.runtime.service_account_name
    return result
