"""The RayCluster of one cluster generation, and its Secret.

It has one head pod without NPU (Ray's head, the driver, the exporter) and one worker pod per node. It is created by
POST once and never written again (design law 4). Facts about KubeRay refer to v1.6.2
(ray-operator/controllers/ray/common/pod.go).
"""

from __future__ import annotations

import json
from typing import Any

from rljob.api.pods import PodTemplate
from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup
from rljob.render import (
    code,
    env,
    hardware,
    injection,
    labels,
    packages,
    pods,
    ports,
    resources,
    roles,
    shared_services,
    stopping,
    topology,
)
from rljob.render.accelerators import facts_of
from rljob.render.device_access import deny_devices
from rljob.render.metadata import child_metadata, job_labels
from rljob.render.names import JobIdentity, cluster_name
from rljob.render.packages import CONFIG_VOLUME
from rljob.render.patch import apply_patch
from rljob.render.placement import avoid_nodes, keep_together
from rljob.render.podgroup import Gang, join_pods, stated_gang
from rljob.render.ports import PortBlock
from rljob.render.security import PodSecurity, settle
from rljob_runtime.contract import PodVariable, head_paths

TOKEN_KEY = "auth_token"  # noqa: S105 - the key that KubeRay reads, not a secret
SHARED_MEMORY_VOLUME = "shared-memory"
SPOOL_VOLUME = "rljob-spool"
EXPORTER = "exporter"
OWN_ADDRESS = {"node-ip-address": f"${PodVariable.POD_IP.value}"}
"""On a node with several addresses Ray would use the one of the default route, but everything else the node's address
in Kubernetes. KubeRay passes the value to the container's shell (v1.6.2, ray-operator/controllers/ray/common/pod.go).
"""
RAY_RESOURCE = "NPU"
"""Name of the Ray resource that the trainer requests on Ascend (verl/single_controller/ray/base.py)."""


def build_token_secret(job: JobIdentity, generation: int) -> dict[str, Any]:
    """Return the Secret that KubeRay's token mode reads, named like the cluster; the executor adds its data."""
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": child_metadata(job, cluster_name(job, generation), f"cluster/{generation}"),
        "type": "Opaque",
        "immutable": True,
    }


def build_raycluster(
    job: JobIdentity,
    spec: RLJobSpec,
    generation: int,
    job_digest: str,
    avoided_nodes: tuple[str, ...] = (),
    block: PortBlock | None = None,
    gang: Gang | None = None,
    spec_generation: int | None = None,
) -> dict[str, Any]:
    """Return the RayCluster; `job_digest` is that of the job.json in the ConfigMap of the same name.

    `block` contains the job's ports on the nodes' network; without one, the defaults of Ray and KubeRay apply. `gang`
    is the scheduler that was chosen if the spec leaves it open. `spec_generation` is the first one that uses the spec,
    by which its shared services are named; it defaults to `generation`.
    """
    gang = gang or stated_gang(spec)
    name = cluster_name(job, generation)
    marks = {labels.CLUSTER_GENERATION: str(generation), labels.ACCELERATOR: spec.accelerator.class_}
    if gang is Gang.KUEUE and spec.scheduling.queue_name is not None:
        marks[labels.KUEUE_QUEUE] = spec.scheduling.queue_name
    if spec.scheduling.workload_priority_class_name is not None:
        marks[labels.KUEUE_PRIORITY] = spec.scheduling.workload_priority_class_name
    metadata = child_metadata(job, name, f"cluster/{generation}", marks)
    metadata["annotations"] |= {labels.JOB_DIGEST: job_digest} | hardware.cluster_annotations(spec)
    if spec.runtime.injected_image is not None:
        metadata["annotations"][labels.RUNTIME_IMAGE] = spec.runtime.injected_image
    hosts = shared_services.hosts(job, spec, spec_generation or generation)
    head = _head_group(job, spec, name, generation, hosts)
    workers = [_worker_group(job, spec, group, name, generation, hosts) for group in spec.worker_groups]
    for group in (head, *workers):
        avoid_nodes(group["template"]["spec"], avoided_nodes)
    if gang is Gang.NONE:
        for of_spec, group in zip(spec.worker_groups, workers, strict=True):
            keep_together(spec, of_spec, group["template"]["spec"], name)
    if block is not None:
        _use_block(metadata, head, workers, block)
    cluster = {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": metadata,
        "spec": {
            "rayVersion": spec.runtime.ray_version,
            **({} if spec.runtime.unauthenticated_ray else {"authOptions": {"mode": "token"}}),
            # A queued cluster is suspended until Kueue admits the workload.
            **({"suspend": True} if gang is Gang.KUEUE else {}),
            "headGroupSpec": head,
            "workerGroupSpecs": workers,
        },
    }
    if gang is Gang.VOLCANO:
        join_pods(spec, cluster)
    return cluster


def _use_block(metadata: dict[str, Any], head: dict[str, Any], workers: list[dict[str, Any]], block: PortBlock) -> None:
    """Set every port that the pods listen on to one of the job's own."""
    mark = {labels.PORT_BLOCK: str(block.first)}
    metadata["annotations"] |= mark
    for role, group in ((ports.Role.HEAD, head), *((ports.Role.WORKER, group) for group in workers)):
        group["rayStartParams"] |= ports.start_params(role, block) | OWN_ADDRESS
        group["template"]["metadata"]["annotations"] |= mark
        ray, *_ = group["template"]["spec"]["containers"]
        ray["ports"] = [*ports.container_ports(role, block), *ray.get("ports", [])]
        ray["env"] += ports.port_variables(role, block)
        for container in group["template"]["spec"].get("initContainers", ()):
            if container["name"] == EXPORTER:
                container["ports"] = ports.container_ports(ports.Role.EXPORTER, block)
                container["env"] += ports.port_variables(ports.Role.EXPORTER, block)


def _head_group(job: JobIdentity, spec: RLJobSpec, name: str, generation: int, hosts: dict[str, str]) -> dict[str, Any]:
    template = spec.head.template
    shared = spec.trainer_group.template
    mounts = pods.user_mounts(shared, template) + code.code_mounts(spec)
    security = PodSecurity.of(spec, template, spec.pod_spec_patch.head)
    ray = (
        _ray_container("ray-head", spec, template, {}, mounts, hosts)
        | security.user_image()
        | stopping.head_hooks(spec)
    )
    ray["env"] = pods.environment(ray["env"], stopping.head_env(spec), env.without_device(spec))
    containers = [ray, _exporter(spec, name) | security.own_program()]
    pod = _pod(job, spec, template, name, containers, mounts, [shared, template], security)
    resources.complete(ray, resources.RAY, template.shared_memory)
    pods.complete_helpers(spec, pod)
    hardware.spare_npu_nodes(spec, pod)
    return {
        "rayStartParams": {
            # KubeRay's head Service needs all addresses. Without a token, the exporter passes on the job API.
            "dashboard-host": "127.0.0.1" if spec.runtime.unauthenticated_ray else "0.0.0.0",  # noqa: S104 - Ray asks for the token
            # The driver is an actor without CPUs; one CPU lets Ray place its own small helpers here.
            "num-cpus": "1",
            # If unset, Ray asks CANN, of which a head without a driver has only stubs.
            "resources": _offered(0),
        },
        "template": {
            "metadata": _pod_metadata(job, spec, template, generation, hardware.head_annotations(spec)),
            "spec": _with_sidecar(_patched(spec, pod, spec.pod_spec_patch.head)),
        },
    }


def _patched(spec: RLJobSpec, pod: dict[str, Any], patch: dict[str, Any] | None) -> dict[str, Any]:
    return deny_devices(spec, settle(apply_patch(pod, patch)))


def sidecar_names(spec: RLJobSpec) -> frozenset[str]:
    """Return the init containers that are restarted when they end, of all pods."""
    templates = (spec.head.template, *(group.template for group in spec.worker_groups))
    own = (EXPORTER, *(service.name for service in pods.services_of_pods(spec)))
    return frozenset(own) | {sidecar.name for template in templates for sidecar in template.sidecars}


def _with_sidecar(pod: dict[str, Any]) -> dict[str, Any]:
    """Make the exporter a native sidecar before all other helpers, so that it is restarted and outlives Ray.

    Without it, a run reports no progress, has no progress deadline, and cannot be asked to stop.
    """
    beside = [container for container in pod["containers"] if container["name"] == EXPORTER]
    return pod | {
        "initContainers": [*({**one, "restartPolicy": "Always"} for one in beside), *pod.get("initContainers", ())],
        "containers": [container for container in pod["containers"] if container["name"] != EXPORTER],
    }


def _worker_group(
    job: JobIdentity, spec: RLJobSpec, group: WorkerGroup, name: str, generation: int, hosts: dict[str, str]
) -> dict[str, Any]:
    facts, template = facts_of(spec), hardware.sized(spec, group)
    devices = {facts.resource: group.devices_per_node}
    mounts = pods.user_mounts(template) + code.code_mounts(spec)
    driver = hardware.driver_paths(spec, frozenset(mount["mountPath"] for mount in mounts))
    security = PodSecurity.of(spec, template, spec.pod_spec_patch.workers)
    ray = (
        _ray_container("ray-worker", spec, template, devices, mounts, hosts)
        | security.user_image()
        | stopping.worker_hooks(spec, group)
    )
    # The hooks of a worker ask the exporter. KubeRay sets the variable only where Ray itself checks the token.
    own_token = [_token(name)] if spec.runtime.unauthenticated_ray else []
    ray["env"] = pods.environment(ray["env"], stopping.worker_env(spec), own_token)
    ray["volumeMounts"] += hardware.driver_volume_mounts(driver)
    pod = _pod(job, spec, template, name, [ray], mounts, [template], security)
    pod["volumes"] += hardware.driver_volumes(driver)
    hardware.guarantee(facts, [ray, *pods.own_helpers(spec, pod)])
    resources.complete(ray, resources.worker_size(group.devices_per_node), template.shared_memory)
    pods.complete_helpers(spec, pod)
    hardware.require_class(spec, pod)
    if (runtime_class := hardware.runtime_class(spec)) is not None:
        pod["runtimeClassName"] = runtime_class
    worker_annotations = hardware.cluster_annotations(spec) | topology.kueue_annotations(spec, group.template)
    metadata = _pod_metadata(job, spec, group.template, generation, worker_annotations)
    metadata["labels"] |= roles.pod_labels(spec, group)
    return {
        "groupName": group.name,
        "replicas": group.nodes,
        "minReplicas": group.nodes,
        "maxReplicas": group.nodes,
        "numOfHosts": 1,
        "rayStartParams": _worker_start_params(spec, group, template.cpu),
        "template": {
            "metadata": metadata,
            "spec": _patched(spec, pod, spec.pod_spec_patch.workers),
        },
    }


def _worker_start_params(spec: RLJobSpec, group: WorkerGroup, cpu: str | None) -> dict[str, str]:
    facts = facts_of(spec)
    params = {"resources": _offered(group.devices_per_node, **roles.ray_resources(spec, group))}
    if facts.ray_cpus_per_device is not None:
        params["num-cpus"] = str(facts.ray_cpus_per_device * group.devices_per_node)
    elif cpu is not None and not facts.is_npu:
        # KubeRay would pass the limit to Ray, which is above the request (v1.6.2, common/pod.go).
        params["num-cpus"] = resources.whole_cpus(cpu)
    return params


def _offered(devices: int, **others: int) -> str:
    # KubeRay passes the value to a shell, so the JSON is quoted once more (kuberay issue 1984).
    return json.dumps(json.dumps({RAY_RESOURCE: devices, **others}))


def _pod_metadata(
    job: JobIdentity, spec: RLJobSpec, template: PodTemplate, generation: int, annotations: dict[str, str]
) -> dict[str, Any]:
    own = job_labels(job) | {labels.CLUSTER_GENERATION: str(generation)}
    if spec.runtime.unauthenticated_ray:
        own[labels.UNAUTHENTICATED_RAY] = "true"
    return {
        "labels": hardware.pod_labels(spec) | dict(template.labels) | own,
        "annotations": annotations | dict(template.annotations),
    }


def _pod(
    job: JobIdentity,
    spec: RLJobSpec,
    template: PodTemplate,
    config_name: str,
    containers: list[dict[str, Any]],
    mounts: pods.Mounts,
    volume_templates: list[PodTemplate],
    security: PodSecurity,
) -> dict[str, Any]:
    return {
        # A restarted Ray process has lost its state, so the pod is replaced instead of the container.
        "restartPolicy": "Never",
        **stopping.grace_period(spec),
        "automountServiceAccountToken": False,
        **pods.placement(spec, template),
        **pods.network(spec),
        "volumes": [
            {"name": SPOOL_VOLUME, "emptyDir": {}},
            {
                "name": CONFIG_VOLUME,
                "configMap": {
                    "name": config_name,
                    "items": [{"key": file, "path": file} for file in ("job.json", *stopping.cluster_files(spec))],
                },
            },
            *_shared_memory(template),
            *pods.user_volumes(*volume_templates),
            *code.code_volumes(job, spec),
            *injection.volumes(spec),
            *packages.volumes(spec),
        ],
        **pods.helpers(spec, template, mounts, security),
        "containers": containers,
    }


def _shared_memory(template: PodTemplate) -> list[dict[str, Any]]:
    if template.shared_memory is None:
        return []
    return [{"name": SHARED_MEMORY_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": template.shared_memory}}]


def _ray_container(
    name: str,
    spec: RLJobSpec,
    template: PodTemplate,
    devices: dict[str, int],
    mounts: pods.Mounts,
    hosts: dict[str, str],
) -> dict[str, Any]:
    shm = [{"name": SHARED_MEMORY_VOLUME, "mountPath": "/dev/shm"}] if template.shared_memory else []  # noqa: S108
    return {
        "name": name,
        "image": spec.runtime.image,
        "imagePullPolicy": spec.runtime.image_pull_policy,
        "env": pods.environment(
            _contract_env(),
            env.operator_env(spec, template),
            pods.user_env(template.env),
            pods.secret_env(spec),
            pods.service_env(spec, hosts),
        ),
        **pods.env_from(spec, template),
        "resources": pods.resources(template.cpu, template.memory, devices, template.ephemeral_storage),
        **pods.LAST_LINES,
        "volumeMounts": [*_contract_mounts(), *injection.mounts(spec), *packages.mounts(spec), *shm, *mounts],
    }


def _exporter(spec: RLJobSpec, secret_name: str) -> dict[str, Any]:
    job_api = [{"name": PodVariable.RAY_JOBS_PORT.value, "value": str(ports.DASHBOARD_PORT)}]
    return {
        "name": EXPORTER,
        "image": spec.runtime.helper_image,
        "imagePullPolicy": spec.runtime.image_pull_policy,
        "command": stopping.exporter_command(spec),
        **stopping.exporter_hooks(),
        "env": [*_contract_env(), _token(secret_name), *(job_api if spec.runtime.unauthenticated_ray else [])],
        "ports": ports.container_ports(ports.Role.EXPORTER, None),
        # No liveness probe: on a node that is short of CPU, it would kill the exporter for answering late. Without
        # requests, the helper would cost the pod its class Guaranteed.
        "resources": resources.whole(resources.EXPORTER),
        **pods.LAST_LINES,
        "volumeMounts": _contract_mounts(),
    }


def _token(secret_name: str) -> dict[str, Any]:
    return {"name": PodVariable.TOKEN.value, "valueFrom": {"secretKeyRef": {"name": secret_name, "key": TOKEN_KEY}}}


def _contract_env() -> list[dict[str, Any]]:
    paths = head_paths()
    return [
        {"name": PodVariable.POD_UID.value, "valueFrom": {"fieldRef": {"fieldPath": "metadata.uid"}}},
        {"name": PodVariable.POD_IP.value, "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
        {"name": PodVariable.NODE_NAME.value, "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
        {"name": PodVariable.CONFIG.value, "value": paths.config},
        {"name": PodVariable.SPOOL.value, "value": paths.spool},
    ]


def _contract_mounts() -> list[dict[str, Any]]:
    paths = head_paths()
    return [
        {"name": SPOOL_VOLUME, "mountPath": paths.spool},
        {"name": CONFIG_VOLUME, "mountPath": paths.config_folder, "readOnly": True},
    ]
