"""Parts of pods that head, workers and initializers share: volumes, environment, placement and helper containers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rljob.api import pods as api
from rljob.api.base import Model
from rljob.api.pods import EnvVar, PodTemplate, Volume
from rljob.api.sources import Service, ServicePlacement
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render import code, injection, packages
from rljob.render.resources import SERVICE, complete
from rljob.render.security import PodSecurity

SERVICE_PROBE_SECONDS = 2
SERVICE_PROBES = 450
"""A service has 15 minutes to accept connections before it is restarted, because reward models load slowly."""

LAST_LINES = {"terminationMessagePolicy": "FallbackToLogsOnError"}
"""The kubelet keeps the last lines of a container that failed in the pod's status, where the operator finds them."""

Container = dict[str, Any]
Mounts = list[dict[str, Any]]


def user_volumes(*templates: PodTemplate) -> list[dict[str, Any]]:
    """Return the volumes of the templates; a later one of the same name takes precedence."""
    merged: dict[str, Volume] = {volume.name: volume for template in templates for volume in template.volumes}
    # Defaults are written explicitly, because the default of hostPath.type differs from that of Kubernetes.
    return [volume.model_dump(by_alias=True, exclude_none=True) for volume in merged.values()]


def user_mounts(*templates: PodTemplate) -> Mounts:
    """Return the mounts of the templates; a later one of the same path takes precedence."""
    merged = {mount.mount_path: mount for template in templates for mount in template.volume_mounts}
    return [mount.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True) for mount in merged.values()]


def user_env(variables: Iterable[EnvVar]) -> list[dict[str, Any]]:
    """Return the user's variables."""
    return [_variable(variable) for variable in variables]


def _variable(variable: EnvVar) -> dict[str, Any]:
    if variable.value_from is None:
        return {"name": variable.name, "value": variable.value or ""}
    return _plain(variable)


def secret_env(spec: RLJobSpec) -> list[dict[str, Any]]:
    """Return the variables from single keys of the job's Secrets."""
    return [
        {"name": item.env, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": item.key}}}
        for secret in spec.secret_refs
        for item in secret.items
    ]


def service_variable(name: str) -> str:
    """Return the name of the variable with a service's URL."""
    return f"RLJOB_SERVICE_{name.upper().replace('-', '_')}_URL"


def service_env(spec: RLJobSpec, hosts: Mapping[str, str] | None = None) -> list[dict[str, Any]]:
    """Return the variables with the services' URLs. `hosts`: where services are that are not on this host."""
    found = {service.name: "localhost" for service in spec.services} | dict(hosts or {})
    return [{"name": service_variable(s.name), "value": f"http://{found[s.name]}:{s.port}"} for s in spec.services]


def services_of_pods(spec: RLJobSpec) -> list[Service]:
    """Return the services that run beside Ray in every pod."""
    return [service for service in spec.services if service.placement is ServicePlacement.POD]


def environment(*layers: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join variables. The first one of a name wins, because the API server accepts each name only once."""
    joined: dict[str, dict[str, Any]] = {}
    for layer in layers:
        for variable in layer:
            joined.setdefault(variable["name"], variable)
    return list(joined.values())


def env_from(spec: RLJobSpec, template: PodTemplate) -> dict[str, Any]:
    """Return the Secrets and ConfigMaps whose keys all become variables.

    Explicit variables take precedence over them.
    """
    sources = [_plain(source) for source in template.env_from]
    sources += [{"secretRef": {"name": secret.name}} for secret in spec.secret_refs if not secret.items]
    return {"envFrom": sources} if sources else {}


def resources(
    cpu: str | None, memory: str | None, devices: dict[str, int] | None = None, disk: str | None = None
) -> dict[str, Any]:
    """Return what the job states: CPU and disk are requests, memory and devices are requests and equal limits.

    `render.resources` adds what is missing.
    """
    requests: dict[str, Any] = {resource: str(count) for resource, count in (devices or {}).items()}
    limits = dict(requests)
    if cpu is not None:
        requests["cpu"] = cpu
    if memory is not None:
        requests["memory"] = limits["memory"] = memory
    if disk is not None:
        requests["ephemeral-storage"] = disk
    return {"requests": requests, "limits": limits}


def helpers(spec: RLJobSpec, template: PodTemplate, mounts: Mounts, security: PodSecurity) -> dict[str, Any]:
    """Return the containers that start before Ray: runtime, code, packages, sidecars, init containers, services.

    An init container with restartPolicy Always keeps running beside Ray and is restarted when it exits, even in a pod
    whose own restartPolicy is Never: https://kubernetes.io/docs/concepts/workloads/pods/sidecar-containers/ KubeRay
    v1.6.2 appends its own wait-gcs-ready after them and only inspects the Ray container (controllers/ray/common/pod.go,
    controllers/ray/utils/validation.go).
    """
    # Proxies and the package index, such as PIP_INDEX_URL.
    variables = {"env": environment(user_env(template.env), secret_env(spec)), **env_from(spec, template)}
    containers = [
        *injection.init_containers(spec, security),
        *code.fetch_containers(spec, security),
        *packages.init_containers(spec, variables, mounts, security),
        *({**_additional(sidecar), "restartPolicy": "Always"} for sidecar in template.sidecars),
        *map(_additional, template.init_containers),
        *(
            service_container(spec, service, mounts, {"restartPolicy": "Always"}) | security.user_image()
            for service in services_of_pods(spec)
        ),
    ]
    return {"initContainers": containers} if containers else {}


def _additional(container: api.Container) -> Container:
    """Return a container of the template; what it leaves out keeps the default of core/v1."""
    return LAST_LINES | container.model_dump(by_alias=True, exclude_none=True, exclude_defaults=True)


def own_helpers(spec: RLJobSpec, pod: dict[str, Any]) -> list[Container]:
    """Return the helpers of a rendered pod whose resources the operator sets, and not the user."""
    names = {service.name for service in services_of_pods(spec)} | {code.FETCH_CONTAINER, injection.CONTAINER}
    names.add(packages.CONTAINER)
    return [container for container in pod.get("initContainers") or () if container["name"] in names]


def complete_helpers(spec: RLJobSpec, pod: dict[str, Any]) -> None:
    """Add the requests and limits that these helpers lack."""
    for container in own_helpers(spec, pod):
        complete(container, SERVICE)


def service_container(spec: RLJobSpec, service: Service, mounts: Mounts, more: Container) -> Container:
    """Return the container of a service, with further fields."""
    container: Container = {
        "name": service.name,
        "image": service.image,
        "imagePullPolicy": spec.runtime.image_pull_policy,
        **more,
        "env": user_env(service.env),
        "resources": resources(service.cpu, service.memory),
        **LAST_LINES,
        # A reward model reads its weights, a sandbox the code that it serves.
        "volumeMounts": mounts,
        # The containers after it, and finally Ray, start when this probe succeeds.
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
    """Return where the pod runs, with which identity and priority; unset fields are omitted."""
    fields: dict[str, Any] = {
        "nodeSelector": dict(template.node_selector),
        "tolerations": [_plain(toleration) for toleration in template.tolerations],
    }
    if template.affinity is not None:
        fields["affinity"] = template.affinity
    return fields | identity(spec, template)


def node_affinity(affinity: dict[str, Any] | None) -> dict[str, Any]:
    """Keep node affinity only; affinity to other pods is meant for the Ray pods."""
    nodes = (affinity or {}).get("nodeAffinity")
    return {"affinity": {"nodeAffinity": nodes}} if nodes else {}


def identity(spec: RLJobSpec, template: PodTemplate) -> dict[str, Any]:
    """Return the identity of the pod: user and groups, account, pull secrets, priority."""
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
    """Return the settings of the node's network, if requested. Names of Services still resolve."""
    return {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"} if spec.network.mode == "Host" else {}


def _plain(model: Model) -> dict[str, Any]:
    return model.model_dump(by_alias=True, exclude_none=True)
