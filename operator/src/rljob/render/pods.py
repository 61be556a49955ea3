"""Parts of pods that head, workers and initializers share: volumes, environment, placement, helpers beside Ray."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rljob.api.base import Model
from rljob.api.pods import EnvVar, PodTemplate, Volume
from rljob.api.sources import Service
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render import code

SERVICE_PROBE_SECONDS = 2
SERVICE_PROBES = 450
"""A service has a quarter of an hour to accept connections before it is restarted: reward models load slowly."""

Container = dict[str, Any]
Mounts = list[dict[str, Any]]


def user_volumes(*templates: PodTemplate) -> list[dict[str, Any]]:
    """Volumes of the templates; a later one of the same name wins."""
    merged: dict[str, Volume] = {volume.name: volume for template in templates for volume in template.volumes}
    # Defaults are spelled out: ours for hostPath.type is not that of Kubernetes.
    return [volume.model_dump(by_alias=True, exclude_none=True) for volume in merged.values()]


def user_mounts(*templates: PodTemplate) -> Mounts:
    """Mounts of the templates; a later one of the same path wins."""
    merged = {mount.mount_path: mount for template in templates for mount in template.volume_mounts}
    return [mount.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True) for mount in merged.values()]


def user_env(variables: Iterable[EnvVar]) -> list[dict[str, Any]]:
    """The user's variables."""
    return [_variable(variable) for variable in variables]


def _variable(variable: EnvVar) -> dict[str, Any]:
    if variable.value_from is None:
        return {"name": variable.name, "value": variable.value or ""}
    return _plain(variable)


def secret_env(spec: RLJobSpec) -> list[dict[str, Any]]:
    """Variables from single keys of the job's Secrets."""
    return [
        {"name": item.env, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": item.key}}}
        for secret in spec.secret_refs
        for item in secret.items
    ]


def service_variable(name: str) -> str:
    """Name of the variable that holds a service's URL."""
    return f"RLJOB_SERVICE_{name.upper().replace('-', '_')}_URL"


def service_env(spec: RLJobSpec) -> list[dict[str, Any]]:
    """Where the services are: beside Ray in every pod."""
    return [{"name": service_variable(s.name), "value": f"http://localhost:{s.port}"} for s in spec.services]


def environment(*layers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join variables; the first of a name wins, since the API server takes a name only once."""
    joined: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for variable in layer:
            joined.setdefault(variable["name"], variable)
    return list(joined.values())


def env_from(spec: RLJobSpec, template: PodTemplate) -> dict[str, Any]:
    """Secrets and ConfigMaps whose keys all become variables; a variable of its own wins over them."""
    sources = [_plain(source) for source in template.env_from]
    sources += [{"secretRef": {"name": secret.name}} for secret in spec.secret_refs if not secret.items]
    return {"envFrom": sources} if sources else {}


def resources(cpu: str | None, memory: str | None, devices: dict[str, int] | None = None) -> dict[str, Any]:
    """Requests and limits: memory is bounded, CPU is not, devices are both (extended resources must be equal)."""
    requests: dict[str, Any] = {resource: str(count) for resource, count in (devices or {}).items()}
    limits = dict(requests)
    if cpu is not None:
        requests["cpu"] = cpu
    if memory is not None:
        requests["memory"] = limits["memory"] = memory
    return {"requests": requests, "limits": limits}


def helpers(spec: RLJobSpec, template: PodTemplate, mounts: Mounts) -> dict[str, Any]:
    """What starts before Ray, in this order: code, proxies and the like, preparation, services.

    An init container with restartPolicy Always runs on beside Ray and is restarted when it ends, also in a pod whose
    own restartPolicy is Never: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/
    KubeRay v1.6.2 appends its own wait-gcs-ready behind them and looks at the Ray container only
    (controllers/ray/common/pod.go, controllers/ray/utils/validation.go).
    """
    containers = [
        *code.fetch_containers(spec),
        *({**sidecar, "restartPolicy": "Always"} for sidecar in template.sidecars),
        *template.init_containers,
        *(_service(spec, service, mounts) for service in spec.services),
    ]
    return {"initContainers": containers} if containers else {}


def own_helpers(spec: RLJobSpec, pod: dict[str, Any]) -> list[Container]:
    """Give those helpers of a rendered pod that the operator sized, and not the user in core/v1's words."""
    names = {service.name for service in spec.services} | {code.FETCH_CONTAINER}
    return [container for container in pod.get("initContainers") or () if container["name"] in names]


def _service(spec: RLJobSpec, service: Service, mounts: Mounts) -> Container:
    container: Container = {
        "name": service.name,
        "image": service.image,
        "imagePullPolicy": spec.runtime.image_pull_policy,
        "restartPolicy": "Always",
        "env": user_env(service.env),
        "resources": resources(service.cpu, service.memory),
        # A reward model reads its weights, a sandbox the code that it serves.
        "volumeMounts": mounts,
        # What comes behind it, Ray at last, starts when this succeeds.
        "startupProbe": {
            "tcpSocket": {"port": service.port},
            "periodSeconds": SERVICE_PROBE_SECONDS,
            "failureThreshold": SERVICE_PROBES,
        },
    }
    if service.command:
        container["command"] = list(service.command)
    if service.args:
        container["args"] = list(service.args)
    return container


def placement(spec: RLJobSpec, template: PodTemplate) -> dict[str, Any]:
    """Where the pod runs, as whom, and with what priority; fields that say nothing are left out."""
    fields: dict[str, Any] = {
        "nodeSelector": dict(template.node_selector),
        "tolerations": [_plain(toleration) for toleration in template.tolerations],
    }
    if template.affinity is not None:
        fields["affinity"] = template.affinity
    return fields | identity(spec, template)


def identity(spec: RLJobSpec, template: PodTemplate) -> dict[str, Any]:
    """Who the pod is: user and groups, account, pull secrets, priority."""
    fields: dict[str, Any] = {}
    if template.security_context is not None:
        fields["securityContext"] = template.security_context.model_dump(
            by_alias=True, exclude_none=True, exclude_defaults=True
        )
    if spec.scheduling.priority_class_name is not None:
        fields["priorityClassName"] = spec.scheduling.priority_class_name
    if spec.runtime.image_pull_secrets:
        fields["imagePullSecrets"] = [{"name": name} for name in spec.runtime.image_pull_secrets]
    if spec.runtime.service_account_name is not None:
        fields["serviceAccountName"] = spec.runtime.service_account_name
    return fields


def network(spec: RLJobSpec) -> dict[str, Any]:
    """The node's network, if asked for; names of Services resolve all the same."""
    return {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if spec.network.mode == "Host" else {}


def _plain(model: Model) -> dict[str, Any]:
    return model.model_dump(by_alias=True, exclude_none=True)
