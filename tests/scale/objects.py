"""Objects created in the cluster: fake nodes, RLJobs, and RayJobs with the same pods as the RLJobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rljob.api.v1alpha1 import API_VERSION, RLJobSpec
from rljob.render.accelerators import BUILT_IN
from rljob.render.names import JobIdentity
from rljob.render.raycluster import build_raycluster
from tests.scale.client import Manifest
from tests.scale.kubelets import HOST
from tests.scale.settings import Settings

NAMESPACE = "scale"
RLJOBS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/rljobs"
RAYJOBS = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayjobs"
RAYCLUSTERS = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters"
DEVICES = 2
"""Devices per worker. Whole nodes would need one node per worker, and nodes are not what is measured."""
HEADS_A_NODE = 10


def spec(workers: int) -> Manifest:
    """Return an RLJob's spec as users write it: no recipe, a volume, checkpoints, logs."""
    # Not a claim, because no controller would bind it.
    volume = {"name": "data", "nfs": {"server": "nfs.example", "path": "/data"}}
    template = {"cpu": "4", "memory": "64Gi", "sharedMemory": "16Gi", "volumes": [volume]}
    return {
        "runtime": {"image": "registry.example/rljob/runtime:cpu"},
        "accelerator": {"class": "cpu"},
        "head": {"template": {"cpu": "2", "memory": "16Gi"}},
        "workerGroups": [
            {
                "name": "trainer",
                "nodes": workers,
                "devicesPerNode": DEVICES,
                "template": template | {"volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            }
        ],
        "model": {"path": "/data/model"},
        "data": {"train": ["/data/train.parquet"], "validation": ["/data/validation.parquet"]},
        "reward": {"path": "/data/reward.py"},
        # The batch need not be divisible by every number of workers up to 20: ranks share prompts, not steps.
        "trainer": {"steps": 1_000_000, "globalBatchSize": 8 * DEVICES * workers},
        # A measurement on a slow machine must not end because of its slowness.
        "deadlines": {"startSeconds": 7200},
        "checkpoint": {"path": "/data/checkpoints", "everySteps": 50},
        "observability": {"logPath": "/data/logs"},
    }


def apart(wanted: Manifest, trainers: int, rollouts: int) -> Manifest:
    """Return such a spec with workers that train and others that generate."""
    (group,) = wanted["workerGroups"]
    groups = [
        group | {"name": "train", "roles": ["Trainer"], "nodes": trainers},
        group | {"name": "generate", "roles": ["Rollout"], "nodes": rollouts},
    ]
    return wanted | {"workerGroups": groups, "trainer": wanted["trainer"] | {"mode": "SeparateAsync"}}


def rljobs(settings: Settings) -> Iterator[Manifest]:
    """Yield the RLJobs."""
    wanted = spec(settings.workers)
    for number in range(settings.jobs):
        metadata = {"name": job_name(number), "namespace": NAMESPACE}
        yield {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": metadata, "spec": wanted}


def rayjobs(settings: Settings) -> Iterator[Manifest]:
    """Yield RayJobs that wait for a submission, each with the RayCluster that our operator would create."""
    job = JobIdentity(NAMESPACE, job_name(0), "00000000-0000-4000-8000-000000000000")
    cluster: dict[str, Any] = build_raycluster(
        job, RLJobSpec.model_validate(spec(settings.workers), context=BUILT_IN), 1, "digest"
    )
    # Otherwise KubeRay creates a Secret for each, a write that should not count in the comparison.
    wanted = {name: value for name, value in cluster["spec"].items() if name != "authOptions"}
    for number in range(settings.jobs):
        yield {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": job_name(number), "namespace": NAMESPACE},
            "spec": {"submissionMode": "InteractiveMode", "rayClusterSpec": wanted},
        }


def job_name(number: int) -> str:
    """Return the name of a job."""
    return f"run-{number:04d}"


def nodes(settings: Settings) -> Iterator[Manifest]:
    """Yield enough nodes with NPUs for all workers, and nodes for the heads."""
    facts = BUILT_IN[RLJobSpec.model_validate(spec(1)).accelerator.class_]
    workers_a_node = facts.devices_per_node // DEVICES
    for_workers = -(-settings.jobs * settings.workers // workers_a_node)
    for_heads = -(-settings.jobs // HEADS_A_NODE)
    # A scheduler may leave gaps where heads use memory of workers.
    for number in range(max(for_workers, for_heads) + 2):
        yield node(f"node-{number:04d}", facts.resource, facts.devices_per_node)


def node(name: str, resource: str, devices: int) -> Manifest:
    """Return a node as its kubelet registers it."""
    room = {"cpu": "192", "memory": "1536Gi", "pods": "110", resource: str(devices)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
        },
        "status": registered(room, room),
    }


def registered(capacity: Manifest, allocatable: Manifest) -> Manifest:
    """Return the status of a node that is ready."""
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting ready status"}
    addresses = [{"type": "InternalIP", "address": HOST}]
    return {"capacity": capacity, "allocatable": allocatable, "addresses": addresses, "conditions": [ready]}
