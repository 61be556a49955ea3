"""Services that all pods of a job share: for each a NetworkPolicy, a Service and a Deployment, without NPUs.

They are rendered with the RayCluster, frozen in its ConfigMap and created before it (`core/steps/shared_services.py`).
A container is the same as beside Ray, with the volumes of the head: except folders of a node, which another node lacks.
The pods are in no queue and no gang. Only the pods of the job reach them, and only at the port of the service: the
chart's policies that open the ports of jobs select none of them (charts/rljob-operator/templates/networkpolicy.yaml).
"""

from __future__ import annotations

from typing import Any

from rljob.api.sources import Service, ServicePlacement
from rljob.api.v1alpha1 import RLJobSpec
from rljob.render import code, labels, pods
from rljob.render.device_access import deny_devices
from rljob.render.hardware import spare_npu_nodes
from rljob.render.metadata import child_metadata, job_labels
from rljob.render.names import JobIdentity, shared_service_name
from rljob.render.network_policy import API_VERSION as POLICY_API_VERSION
from rljob.render.resources import SERVICE, complete
from rljob.render.security import PodSecurity

Manifest = dict[str, Any]

READY_PROBE_SECONDS = 5


def shared(spec: RLJobSpec) -> list[Service]:
    """Return the services that have pods of their own."""
    return [service for service in spec.services if service.placement is ServicePlacement.SHARED]


def hosts(job: JobIdentity, spec: RLJobSpec, generation: int) -> dict[str, str]:
    """Return the host of each shared service; `generation` is the first one that uses the spec."""
    named = {service.name: shared_service_name(job, generation, service.name) for service in shared(spec)}
    return {service: f"{name}.{job.namespace}.svc" for service, name in named.items()}


def build_shared_services(job: JobIdentity, spec: RLJobSpec, generation: int) -> list[Manifest]:
    """Return the objects of all shared services in the order of their creation: a policy exists before its pods."""
    made = []
    for service in shared(spec):
        name = shared_service_name(job, generation, service.name)
        marks = {labels.SERVICE: name}
        metadata = child_metadata(job, name, f"service/{name}", marks)
        selected = {labels.JOB_UID: job.uid} | marks
        made += [
            _network_policy(job, service, metadata, selected),
            _service(service, metadata, selected),
            _deployment(job, spec, service, metadata, selected),
        ]
    return made


def _network_policy(job: JobIdentity, service: Service, metadata: Manifest, selected: dict[str, str]) -> Manifest:
    own_pods = {"podSelector": {"matchLabels": {labels.JOB_UID: job.uid}}}
    ports = [{"protocol": "TCP", "port": service.port}]
    return {
        "apiVersion": POLICY_API_VERSION,
        "kind": "NetworkPolicy",
        "metadata": metadata,
        "spec": {
            "podSelector": {"matchLabels": selected},
            "policyTypes": ["Ingress"],
            "ingress": [{"from": [own_pods], "ports": ports}],
        },
    }


def _service(service: Service, metadata: Manifest, selected: dict[str, str]) -> Manifest:
    ports = [{"protocol": "TCP", "port": service.port, "targetPort": service.port}]
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {"type": "ClusterIP", "selector": selected, "ports": ports},
    }


def _deployment(
    job: JobIdentity, spec: RLJobSpec, service: Service, metadata: Manifest, selected: dict[str, str]
) -> Manifest:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata,
        "spec": {
            "replicas": service.replicas,
            "selector": {"matchLabels": selected},
            "template": {"metadata": {"labels": job_labels(job) | selected}, "spec": _pod(job, spec, service)},
        },
    }


def _pod(job: JobIdentity, spec: RLJobSpec, service: Service) -> Manifest:
    template = spec.head.template
    security = PodSecurity.of(spec, template)
    volumes, mounts = _folders(job, spec)
    # A replica that no longer accepts connections gets no requests until it does.
    probe = {"readinessProbe": {"tcpSocket": {"port": service.port}, "periodSeconds": READY_PROBE_SECONDS}}
    container = pods.service_container(spec, service, mounts, probe) | security.user_image()
    complete(container, SERVICE)
    first = code.fetch_containers(spec, security)
    pod: Manifest = {
        "automountServiceAccountToken": False,
        "nodeSelector": dict(template.node_selector),
        "tolerations": [each.model_dump(by_alias=True, exclude_none=True) for each in template.tolerations],
        **pods.node_affinity(template.affinity),
        **pods.identity(spec, template),
        "volumes": volumes,
        **({"initContainers": first} if first else {}),
        "containers": [container],
    }
    spare_npu_nodes(spec, pod)
    return deny_devices(spec, pod)


def _folders(job: JobIdentity, spec: RLJobSpec) -> tuple[list[Manifest], pods.Mounts]:
    """Return the volumes and mounts of the head and the code, without folders of a node and what nothing mounts."""
    templates = (spec.trainer_group.template, spec.head.template)
    mounts = pods.user_mounts(*templates) + code.code_mounts(spec)
    mounted = {mount["name"] for mount in mounts}
    volumes = [
        volume
        for volume in (*pods.user_volumes(*templates), *code.code_volumes(job, spec))
        if volume["name"] in mounted and "hostPath" not in volume
    ]
    kept = {volume["name"] for volume in volumes}
    return volumes, [mount for mount in mounts if mount["name"] in kept]
