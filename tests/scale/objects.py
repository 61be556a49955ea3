"""What is put into the cluster: fake nodes, RLJobs, and RayJobs whose pods are the same as those of the RLJobs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rljob.api.v1alpha1 import API_VERSION, RLJobSpec
from rljob.render.accelerators import ACCELERATORS
from rljob.render.names import JobIdentity
from rljob.render.raycluster import build_raycluster
from tests.scale.client import Manifest
from tests.scale.settings import Settings

NAMESPACE = "scale"
RLJOBS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/rljobs"
RAYJOBS = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayjobs"
RAYCLUSTERS = f"/apis/ray.io/v1/namespaces/{NAMESPACE}/rayclusters"
DEVICES = 2
"""Devices a worker: a whole node each would need a node each, and nodes are not what is measured."""
HEADS_A_NODE = 10


def spec(workers: int) -> Manifest:
    """Give an RLJob's spec as users write it: no recipe, a volume, checkpoints, logs."""
    # Not a claim: there is no controller that would bind it.
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
        # A batch that every number of workers up to 20 divides is not needed: ranks share prompts, not steps.
        "trainer": {"steps": 1_000_000, "globalBatchSize": 8 * DEVICES * workers},
        # What is measured on a slow machine must not end for its slowness.
        "deadlines": {"startSeconds": 7200},
        "checkpoint": {"path": "/data/checkpoints", "everySteps": 50},
        "observability": {"logPath": "/data/logs"},
    }


def rljobs(settings: Settings) -> Iterator[Manifest]:
    """Give the RLJobs."""
    wanted = spec(settings.workers)
    for number in range(settings.jobs):
        metadata = {"name": job_name(number), "namespace": NAMESPACE}
        yield {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": metadata, "spec": wanted}


def rayjobs(settings: Settings) -> Iterator[Manifest]:
    """Give RayJobs that wait for a submission, each with the RayCluster that our operator would make."""
    job = JobIdentity(NAMESPACE, job_name(0), "00000000-0000-4000-8000-000000000000")
    cluster: dict[str, Any] = build_raycluster(job, RLJobSpec.model_validate(spec(settings.workers)), 1, "digest")
    # KubeRay would make a Secret of its own for each: a write that the comparison need not charge it with.
    wanted = {name: value for name, value in cluster["spec"].items() if name != "authOptions"}
    for number in range(settings.jobs):
        yield {
            "apiVersion": "ray.io/v1",
            "kind": "RayJob",
            "metadata": {"name": job_name(number), "namespace": NAMESPACE},
            "spec": {"submissionMode": "InteractiveMode", "rayClusterSpec": wanted},
        }


def job_name(number: int) -> str:
    """Give the name of a job."""
    return f"run-{number:04d}"


def nodes(settings: Settings) -> Iterator[Manifest]:
    """Give enough nodes with NPUs for all workers, and room for the heads."""
    facts = ACCELERATORS[RLJobSpec.model_validate(spec(1)).accelerator.class_]
    workers_a_node = facts.devices_per_node // DEVICES
    for_workers = -(-settings.jobs * settings.workers // workers_a_node)
    for_heads = -(-settings.jobs // HEADS_A_NODE)
    # A scheduler may leave gaps where heads take memory from workers.
    for number in range(max(for_workers, for_heads) + 2):
        yield node(f"node-{number:04d}", facts.resource, facts.devices_per_node)


def node(name: str, resource: str, devices: int) -> Manifest:
    """Give a node that KWOK keeps."""
    room = {"cpu": "192", "memory": "1536Gi", "pods": "110", resource: str(devices)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"type": "kwok", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux"},
            "annotations": {"kwok.x-k8s.io/node": "fake"},
        },
        "status": {"capacity": room, "allocatable": room},
    }
