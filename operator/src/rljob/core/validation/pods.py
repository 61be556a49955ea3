"""Pods: volumes, mounts, variables, labels, containers and services of the Ray pods.

The API server checks pods as well, but only when KubeRay creates them, so that only KubeRay would see the error. The
checks here cover common mistakes; sources are the rules of core/v1 (pkg/apis/core/validation of v1.36).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from rljob.api.field_path import bracketed, member
from rljob.api.group import GROUP
from rljob.api.pods import Container
from rljob.api.quantity import quantity
from rljob.api.sources import ServicePlacement
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.violation import Check, Violation
from rljob.render.code import CODE_VOLUME, FETCH_CONTAINER
from rljob.render.hardware import sized
from rljob.render.names import is_label_name, is_label_value
from rljob.render.packages import CONFIG_VOLUME, FOLDER
from rljob.render.pods import services_of_pods
from rljob.render.ports import DASHBOARD_PORT, RayVariable
from rljob.render.raycluster import SHARED_MEMORY_VOLUME, SPOOL_VOLUME
from rljob.render.stopping import SHELL_VARIABLE
from rljob_runtime.contract import (
    INJECTED_FOLDER,
    UNAUTHENTICATED_RAY_MINIMUM,
    AttemptVariable,
    PodVariable,
    Port,
    head_paths,
)

OUR_VARIABLES = frozenset(variable.value for variable in (*PodVariable, *AttemptVariable, *RayVariable))
RESERVED_VOLUMES = frozenset({CODE_VOLUME, CONFIG_VOLUME, SHARED_MEMORY_VOLUME, SPOOL_VOLUME})
OUR_PREFIX = "rljob-"
RAY_VERSION_MIN = (2, 52, 0)
"""Of authOptions.mode token (ray-operator/controllers/ray/utils/validation.go of v1.6.2)."""
UNAUTHENTICATED = "spec.runtime.unauthenticatedRay"
RESERVED_CONTAINERS = frozenset({"ray-head", "ray-worker", "exporter", FETCH_CONTAINER, "autoscaler", "wait-gcs-ready"})
"""Of the operator and of KubeRay (ray-operator/controllers/ray/common/pod.go of v1.6.2)."""
RESERVED_PORTS = {
    6379: "Ray's GCS",
    8000: "Ray Serve",
    8080: "Ray's metrics",
    DASHBOARD_PORT: "Ray's dashboard",
    10001: "Ray's client server",
    52365: "Ray's dashboard agent",
    Port.METRICS.value: "the exporter's metrics",
    Port.API.value: "the exporter's API",
}
"""https://docs.ray.io/en/latest/ray-core/configure.html#ports-configurations"""
RAY_WORKER_PORTS = range(10002, 20000)
"""From the same page: min-worker-port and max-worker-port."""
PLAIN_RESOURCES = frozenset({"cpu", "memory", "ephemeral-storage"})
HUGE_PAGES = "hugepages-"
AFFINITY_RULES = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
CONTAINER_NAME = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
DEVICE_SHARED_MEMORY = "/dev/shm"  # noqa: S108 - a mount point, not a file


def mounts(spec: RLJobSpec, template: str) -> dict[str, str]:
    """Return path -> volume for the pods of a template; the head also mounts what the trainer's workers mount."""
    own = dict(fields.templates(spec))[template]
    listed = [spec.trainer_group.template, own] if template == fields.HEAD else [own]
    return {normal(mount.mount_path): mount.name for part in listed for mount in part.volume_mounts}


def mount_of(spec: RLJobSpec, path: str, template: str) -> str | None:
    """Return the volume that a path is on in the pods of a template: that of the longest mount above it."""
    found = mounts(spec, template)
    best = max((mount for mount in found if f"{normal(path)}/".startswith(f"{mount}/")), key=len, default=None)
    return None if best is None else found[best]


def normal(path: str) -> str:
    """Return a path without repeated and trailing slashes."""
    return "/" + "/".join(part for part in path.split("/") if part)


def _volumes_are_ours_or_theirs(spec: RLJobSpec) -> Iterator[Violation]:
    """The operator's own volumes reserve their names."""
    for path, template in fields.templates(spec):
        for index, volume in enumerate(template.volumes):
            if volume.name in RESERVED_VOLUMES or volume.name.startswith(OUR_PREFIX):
                yield Violation(
                    f"{path}.volumes[{index}].name", f"{volume.name} is reserved by the operator; rename it"
                )


def _mounts_have_volumes(spec: RLJobSpec) -> Iterator[Violation]:
    """The head may mount volumes of the trainer's workers, but not vice versa."""
    shared = {volume.name for volume in spec.trainer_group.template.volumes}
    for path, template in fields.templates(spec):
        known = {volume.name for volume in template.volumes} | (shared if path == fields.HEAD else set())
        for index, mount in enumerate(template.volume_mounts):
            if mount.name not in known:
                listed = ", ".join(sorted(known)) or "none"
                yield Violation(
                    f"{path}.volumeMounts[{index}].name", f"volume {mount.name} does not exist; volumes are {listed}"
                )


def _mounts_hide_nothing(spec: RLJobSpec) -> Iterator[Violation]:
    """A mount may not hide one of the operator's, nor another mount."""
    paths = head_paths()
    ours = {paths.config_folder, paths.spool, DEVICE_SHARED_MEMORY}
    if spec.code.type != "Image":
        ours.add(normal(spec.code.mount_path))
    for path, template in fields.templates(spec):
        seen: set[str] = set()
        for index, mount in enumerate(template.volume_mounts):
            field, place = f"{path}.volumeMounts[{index}].mountPath", normal(mount.mount_path)
            if place in ours or place == "/" or is_injected_path(place, spec):
                yield Violation(field, f"{mount.mount_path} is reserved by the operator; use another path")
            elif place in seen and not any(mount.mount_path == m.mount_path for m in template.volume_mounts[:index]):
                yield Violation(field, f"{mount.mount_path} is mounted twice; remove one mount")
            seen.add(place)


def _affinity_stays_in_its_namespace(spec: RLJobSpec) -> Iterator[Violation]:
    """Anti-affinity to the pods of other namespaces, required by one pod, keeps all of theirs off its nodes."""
    for path, template in fields.templates(spec):
        for kind in ("podAffinity", "podAntiAffinity"):
            for place, term in _affinity_terms(f"{path}.affinity.{kind}", (template.affinity or {}).get(kind)):
                for name in ("namespaces", "namespaceSelector"):
                    if name in term:
                        yield Violation(
                            f"{place}.{name}",
                            "selects pods of other namespaces; remove it: terms hold in the job's own",
                        )


def _affinity_terms(path: str, affinity: object) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the terms of an affinity to pods with their paths; the API server judges everything else in it."""
    for rule in AFFINITY_RULES:
        listed = affinity.get(rule) if isinstance(affinity, Mapping) else None
        for index, entry in enumerate(listed if isinstance(listed, list) else ()):
            inner = entry.get("podAffinityTerm") if isinstance(entry, Mapping) else None
            if isinstance(inner, Mapping):
                yield f"{path}.{rule}[{index}].podAffinityTerm", inner
            elif isinstance(entry, Mapping):
                yield f"{path}.{rule}[{index}]", entry


def _variables_are_free(spec: RLJobSpec) -> Iterator[Violation]:
    """The operator sets the variables of the contract with the image."""
    for field, variable in fields.variables(spec):
        if (problem := variable_problem(variable.name, spec)) is not None:
            yield Violation(f"{field}.name", problem)


def variable_problem(name: object, spec: RLJobSpec) -> str | None:
    """Return why a variable of the pods cannot be set; None if it can."""
    if is_ours(name):
        return f"{name} is reserved by the operator; use another name"
    if name == SHELL_VARIABLE and spec.runtime.injected_image is not None:
        return (
            f"{name} brings the injected runtime into Ray's processes; set here the variables that your file exports, "
            "or set runtime.injection to Never for an image that contains the runtime"
        )
    if name == SHELL_VARIABLE and spec.runtime.packages is not None:
        return f"{name} brings runtime.packages into Ray's processes; set here the variables that your file exports"
    return None


def is_injected_path(place: str, spec: RLJobSpec) -> bool:
    """Report whether a normalized path lies in the injected runtime, or in the installed packages."""
    if spec.runtime.packages is not None and (place + "/").startswith(FOLDER + "/"):
        return True
    return spec.runtime.injected_image is not None and (place + "/").startswith(INJECTED_FOLDER + "/")


def is_ours(variable: object) -> bool:
    """Report whether a variable belongs to the contract between operator and image."""
    return str(variable) in OUR_VARIABLES or str(variable).startswith("RLJOB_")


def _secret_variables_are_free(spec: RLJobSpec) -> Iterator[Violation]:
    """Two Secrets cannot fill the same variable."""
    seen: dict[str, str] = {}
    for index, reference in enumerate(spec.secret_refs):
        for number, item in enumerate(reference.items):
            field = f"spec.secretRefs[{index}].items[{number}].env"
            if (problem := variable_problem(item.env, spec)) is not None:
                yield Violation(field, problem)
            elif seen.setdefault(item.env, reference.name) != reference.name:
                yield Violation(field, f"{item.env} is already set from Secret {seen[item.env]}; rename one")


def _tolerations_hold(spec: RLJobSpec) -> Iterator[Violation]:
    """Apply the rules of the API server (validateTolerations)."""
    for path, template in fields.templates(spec):
        for index, toleration in enumerate(template.tolerations):
            place = f"{path}.tolerations[{index}]"
            if toleration.operator == "Exists" and toleration.value:
                yield Violation(
                    place, f"operator Exists allows no value, but it is {toleration.value}; use operator Equal"
                )
            if toleration.operator == "Equal" and not toleration.key:
                yield Violation(place, "operator Equal requires a key; set it, or use operator Exists for all taints")
            if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
                yield Violation(
                    place, "tolerationSeconds requires effect NoExecute; set it, or remove tolerationSeconds"
                )


OF_VOLCANO = ("volcano.sh/", "scheduling.volcano.sh/", "scheduling.k8s.io/group-name")
"""Marks of pods that Volcano reads (volcano.sh/apis v1.14.0, pkg/apis/scheduling/v1beta1/labels.go)."""


def _labels_are_labels(spec: RLJobSpec) -> Iterator[Violation]:
    """Keys must be qualified names, and values of labels and selectors must be label values."""
    for path, template in fields.templates(spec):
        for name in ("nodeSelector", "labels", "annotations"):
            entries = {
                "nodeSelector": template.node_selector, "labels": template.labels, "annotations": template.annotations
            }[name]  # fmt: skip
            for key, value in entries.items():
                field = f"{path}.{name}{bracketed(key)}"
                if not is_label_name(key):
                    yield Violation(field, "is not a label name; use one such as team or example.com/team")
                elif name != "nodeSelector" and key.startswith(f"{GROUP}/"):
                    yield Violation(field, "is reserved by the operator; use another name, such as example.com/team")
                elif name != "nodeSelector" and key.startswith(OF_VOLCANO):
                    yield Violation(
                        field, "puts the pods into a group of Volcano, perhaps that of another job; use scheduling.gang"
                    )
                elif name != "annotations" and not is_label_value(value):
                    yield Violation(field, f"{value!r} is not a label value: at most 63 letters, digits, '-_.'")


def _memory_holds_shared_memory(spec: RLJobSpec) -> Iterator[Violation]:
    """The contents of /dev/shm count as memory of the pod."""
    workers = {f"{path}.template": sized(spec, group) for path, group in fields.groups(spec)}
    for path, own in fields.templates(spec):
        template = workers.get(path, own)
        memory, shared = template.memory, template.shared_memory
        if memory is not None and shared is not None and quantity(shared) >= quantity(memory):
            yield Violation(
                f"{path}.sharedMemory", f"{shared} counts as memory, but template.memory is {memory}; raise memory"
            )


def _users_are_themselves(spec: RLJobSpec) -> Iterator[Violation]:
    """The kubelet would refuse the container."""
    for path, template in fields.templates(spec):
        context = template.security_context
        if context is not None and context.run_as_non_root and context.run_as_user == 0:
            yield Violation(
                f"{path}.securityContext", "runAsNonRoot contradicts runAsUser 0; set another user, or allow root"
            )


def _containers_are_named(spec: RLJobSpec) -> Iterator[Violation]:
    """Additional containers need unique names, and have no devices."""
    for path, template in fields.templates(spec):
        seen: set[str] = {service.name for service in services_of_pods(spec)}
        for name, entries in (("initContainers", template.init_containers), ("sidecars", template.sidecars)):
            for index, container in enumerate(entries):
                yield from _container(f"{path}.{name}[{index}]", container, seen)


def _container(field: str, container: Container, seen: set[str]) -> Iterator[Violation]:
    name = container.name
    if not re.fullmatch(CONTAINER_NAME, name):
        yield Violation(f"{field}.name", "must be at most 63 lower-case letters, digits and '-'")
    elif _is_reserved(name):
        yield Violation(f"{field}.name", f"{name} is reserved by the operator; rename it")
    elif name in seen:
        yield Violation(f"{field}.name", f"{name} is used twice in the pod; rename one")
    else:
        seen.add(name)
    for kind, amounts in (("requests", container.resources.requests), ("limits", container.resources.limits)):
        for resource in amounts:
            if (problem := resource_problem(resource)) is not None:
                yield Violation(member(f"{field}.resources.{kind}", resource), problem)


def resource_problem(name: str) -> str | None:
    """Return why a container may not ask for a resource; None if it may.

    Devices are counted, placed and billed by the worker group; a container beside it would hold more of them, unseen.
    """
    if name in PLAIN_RESOURCES or name.startswith(HUGE_PAGES):
        return None
    listed = ", ".join(sorted(PLAIN_RESOURCES))
    return f"is not {listed} or {HUGE_PAGES}*; devices are set by workerGroups[].devicesPerNode only"


def _is_reserved(name: str) -> bool:
    return name in RESERVED_CONTAINERS or name.startswith(OUR_PREFIX)


def _services_have_ports(spec: RLJobSpec) -> Iterator[Violation]:
    """A service in the pods shares their network with Ray, the exporter and the other services."""
    seen: dict[int, str] = {}
    for index, service in enumerate(spec.services):
        field = f"spec.services[{index}].port"
        if _is_reserved(service.name):
            yield Violation(f"spec.services[{index}].name", f"{service.name} is reserved by the operator; rename it")
        if service.placement is ServicePlacement.SHARED:
            continue
        if (owner := RESERVED_PORTS.get(service.port)) is not None:
            yield Violation(field, f"{service.port} is used by {owner}; use another port")
        elif service.port in RAY_WORKER_PORTS:
            yield Violation(
                field, f"{service.port} is in the range of Ray's workers (10002 to 19999); use another port"
            )
        elif (other := seen.setdefault(service.port, service.name)) != service.name:
            yield Violation(field, f"{service.port} is already the port of service {other}; use another port")


def _shared_services_are_reached(spec: RLJobSpec) -> Iterator[Violation]:
    """Pods of a service are counted by replicas, and reached by those pods that a NetworkPolicy can name."""
    for index, service in enumerate(spec.services):
        path = f"spec.services[{index}]"
        if service.placement is ServicePlacement.POD and service.replicas > 1:
            yield Violation(
                f"{path}.replicas",
                f"{service.replicas}, but with placement Pod every pod of the job has one; remove replicas, or set "
                "placement to Shared",
            )
        if service.placement is ServicePlacement.SHARED and spec.network.mode == "Host":
            yield Violation(
                f"{path}.placement",
                "Shared is open to the pods of the job only, which a NetworkPolicy cannot tell from others on the "
                "nodes' network (network.mode Host); use placement Pod, or network.mode Pod",
            )


def _ray_knows_tokens(spec: RLJobSpec) -> Iterator[Violation]:
    """With a token and an older Ray, KubeRay creates no pods and reports it in an event only."""
    stated, oldest = spec.runtime.ray_version, UNAUTHENTICATED_RAY_MINIMUM
    version, least = _numbers(stated), ".".join(map(str, RAY_VERSION_MIN))
    if version >= RAY_VERSION_MIN:
        if spec.runtime.unauthenticated_ray:
            yield Violation(UNAUTHENTICATED, f"Ray {stated} can check the cluster's token; remove unauthenticatedRay")
    elif version < _numbers(oldest):
        yield Violation("spec.runtime.rayVersion", f"{stated} cannot check the cluster's token; use {least} or later")
    elif not spec.runtime.unauthenticated_ray:
        yield Violation(
            "spec.runtime.rayVersion",
            f"{stated} cannot check the cluster's token; use {least} or later, or set runtime.unauthenticatedRay where "
            "the limit unauthenticated-ray of the namespace allows it",
        )


def _unauthenticated_ray_is_closed(spec: RLJobSpec) -> Iterator[Violation]:
    """On the nodes' network, no NetworkPolicy applies, and every pod of the cluster could run code in the job."""
    if spec.runtime.unauthenticated_ray and spec.network.mode == "Host":
        yield Violation(
            UNAUTHENTICATED,
            "a Ray without token authentication needs a NetworkPolicy, and with network.mode Host none applies; use "
            "network.mode Pod",
        )


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


CHECKS: tuple[Check, ...] = (
    _ray_knows_tokens,
    _unauthenticated_ray_is_closed,
    _volumes_are_ours_or_theirs,
    _mounts_have_volumes,
    _mounts_hide_nothing,
    _affinity_stays_in_its_namespace,
    _variables_are_free,
    _secret_variables_are_free,
    _tolerations_hold,
    _labels_are_labels,
    _memory_holds_shared_memory,
    _users_are_themselves,
    _containers_are_named,
    _services_have_ports,
    _shared_services_are_reached,
)
