"""Faults of nodes and pods, as Kubernetes would show them: there are no kubelets or device plug-ins here."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

from tests.scale.client import ApiError, Client
from tests.scale.fleet.history import NPU, Pod
from tests.scale.fleet.mix import Fault
from tests.scale.kubelets import LOST

OUTAGE_SECONDS = 25.0
EVICTION_SECONDS = 3.0
"""Time until pods are evicted from a lost node. Kubernetes' default is 300 s."""
UNREACHABLE = "node.kubernetes.io/unreachable"
MERGE = "merge-patch+json"
STRATEGIC = "strategic-merge-patch+json"


async def strike(client: Client, fault: Fault, target: tuple[str, Pod]) -> None:
    """Inject a fault into the job of a worker pod, and end it after a while."""
    name, pod = target
    match fault:
        case Fault.WORKER:
            await _delete(client, name)
        case Fault.HEAD:
            space, _, cluster = pod.cluster.partition("/")
            where = f"/api/v1/namespaces/{space}/pods?labelSelector=ray.io/cluster={cluster},ray.io/node-type=head"
            for head in (await client.list(where))[0]:
                await _delete(client, f"{space}/{head['metadata']['name']}")
        case Fault.NODE:
            await _lose(client, name, pod.node)
        case Fault.DEVICE:
            await _weaken(client, pod)


async def _delete(client: Client, name: str) -> None:
    space, _, pod = name.partition("/")
    try:
        await client.ask("DELETE", f"/api/v1/namespaces/{space}/pods/{pod}")
    except ApiError as error:
        # It was already being deleted.
        if error.status != HTTPStatus.NOT_FOUND:
            raise


async def _lose(client: Client, pod: str, node: str) -> None:
    """Lose a node: it is not ready, and its terminating pods stay until it returns."""
    path = f"/api/v1/nodes/{node}"
    await client.ask("PATCH", path, json.dumps({"metadata": {"labels": {LOST: "true"}}}), MERGE)
    taints = [{"key": UNREACHABLE, "effect": effect} for effect in ("NoSchedule", "NoExecute")]
    await client.ask("PATCH", path, json.dumps({"spec": {"taints": taints}}), MERGE)
    await _set_ready(client, path, "Unknown")
    await asyncio.sleep(EVICTION_SECONDS)
    await _delete(client, pod)
    await asyncio.sleep(OUTAGE_SECONDS)
    await client.ask("PATCH", path, json.dumps({"spec": {"taints": []}}), MERGE)
    await _set_ready(client, path, "True")
    await client.ask("PATCH", path, json.dumps({"metadata": {"labels": {LOST: None}}}), MERGE)


async def _set_ready(client: Client, path: str, value: str) -> None:
    condition = {"type": "Ready", "status": value, "reason": "Fault", "message": "set by the test"}
    await client.ask("PATCH", f"{path}/status", json.dumps({"status": {"conditions": [condition]}}), STRATEGIC)


async def _weaken(client: Client, pod: Pod) -> None:
    """Make one device unhealthy: the device plug-in removes it from the allocatable devices, and pods stay."""
    path = f"/api/v1/nodes/{pod.node}/status"
    for devices in (pod.devices - 1, pod.devices):
        await client.ask("PATCH", path, json.dumps({"status": {"allocatable": {NPU: str(devices)}}}), MERGE)
        await asyncio.sleep(OUTAGE_SECONDS)
