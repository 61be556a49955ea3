"""The kubelets of all nodes, in one process: pods are Ready as soon as they have a node, and go when they are deleted.

`python -m tests.scale.kubelets URL PKI NETWORK`. Addresses are of NETWORK; pods on the host's network have 127.0.0.1.
Pods of Jobs, such as initializers, succeed at once. The kubelet of a node with the label LOST does not end its pods.

It is not KWOK, which decodes each change of a pod completely, in one worker: with 1,000 jobs of 10 pods it took more of
two cores than either operator, until the API server ended its watch.
"""

from __future__ import annotations

import asyncio
import ipaddress
import sys
from collections import deque
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import aiohttp

from tests.scale.client import METADATA, ApiError, Client, Manifest

HOST = "127.0.0.1"
LOST = "test.rljob.dev/lost"
BOUND = "/api/v1/pods?fieldSelector=status.phase%3DPending,spec.nodeName%21%3D"
"""Pods that have a node and do not run yet."""
PATCH = "strategic-merge-patch+json"
AT_A_TIME = 16
AGAIN_SECONDS = 1.0
FOLLOWS = "the kubelets follow nodes and pods"
"""First line of the output."""
CONDITIONS = ("Initialized", "Ready", "ContainersReady")


class Kubelets:
    """What they know of pods: those that were started, and those that end on a lost node."""

    def __init__(self, client: Client, network: str) -> None:
        self._client = client
        half, _ = ipaddress.ip_network(network).subnets()  # in the other one the plane marks its network
        self._free = deque(map(str, half.hosts()))
        self._started: dict[str, tuple[str, str | None]] = {}
        """Node and own address by uid."""
        self._ending: dict[str, tuple[str, str]] = {}
        """Node and path of pods that are to be deleted, by uid."""
        self._lost: set[str] = set()
        self._room = asyncio.Semaphore(AT_A_TIME)

    async def run(self) -> None:
        """Follow nodes and pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow_lost_nodes(group))
            group.create_task(self._follow_bound_pods(group))
            group.create_task(self._follow_ends(group))

    async def _follow_lost_nodes(self, group: asyncio.TaskGroup) -> None:
        async for event, node in self._client.watch(f"/api/v1/nodes?labelSelector={LOST}", METADATA, patient=True):
            name = node["metadata"]["name"]
            if event != "DELETED":
                self._lost.add(name)
                continue
            self._lost.discard(name)
            for uid in [uid for uid, (place, _) in self._ending.items() if place == name]:
                group.create_task(self._delete(uid))

    async def _follow_bound_pods(self, group: asyncio.TaskGroup) -> None:
        async for event, pod in self._client.watch(BOUND, patient=True):
            metadata = pod["metadata"]
            if event == "DELETED" or metadata["uid"] in self._started:
                continue
            node = pod["spec"]["nodeName"]
            own = None if pod["spec"].get("hostNetwork") else self._free.popleft()
            self._started[metadata["uid"]] = node, own
            if "deletionTimestamp" in metadata:
                self._end(pod, group)
            else:
                group.create_task(self._start(pod, own or HOST))

    async def _follow_ends(self, group: asyncio.TaskGroup) -> None:
        async for event, pod in self._client.watch("/api/v1/pods", METADATA, patient=True):
            uid = pod["metadata"]["uid"]
            if event == "DELETED":
                self._ending.pop(uid, None)
                _, address = self._started.pop(uid, ("", None))
                if address is not None:
                    self._free.append(address)
            elif "deletionTimestamp" in pod["metadata"] and uid in self._started and uid not in self._ending:
                self._end(pod, group)

    def _end(self, pod: Manifest, group: asyncio.TaskGroup) -> None:
        uid = pod["metadata"]["uid"]
        self._ending[uid] = self._started[uid][0], _path(pod)
        group.create_task(self._delete(uid))

    async def _start(self, pod: Manifest, address: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="seconds")
        await self._report(pod, _running(pod, address, now))
        if any(owner["kind"] == "Job" for owner in pod["metadata"].get("ownerReferences", ())):
            await self._report(pod, _succeeded(pod, now))

    async def _report(self, pod: Manifest, status: Manifest) -> None:
        uid = pod["metadata"]["uid"]
        await self._ask(uid, "PATCH", f"{_path(pod)}/status", {"metadata": {"uid": uid}, "status": status}, PATCH)

    async def _delete(self, uid: str) -> None:
        node, path = self._ending.get(uid, ("", ""))
        if path and node not in self._lost:
            await self._ask(uid, "DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}})

    async def _ask(self, uid: str, method: str, path: str, body: Manifest, kind: str = "json") -> None:
        """Send a request about a pod until it is answered, or the pod is gone."""
        async with self._room:
            while uid in self._started:
                try:
                    await self._client.ask(method, path, body, kind)
                except ApiError as error:
                    if error.status == HTTPStatus.NOT_FOUND:
                        return
                    if error.status != HTTPStatus.CONFLICT and not error.is_of_a_busy_server:
                        raise
                except (TimeoutError, aiohttp.ClientError):
                    pass
                else:
                    return
                await asyncio.sleep(AGAIN_SECONDS)


def _path(pod: Manifest) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _running(pod: Manifest, address: str, now: str) -> dict[str, Any]:
    spec = pod["spec"]
    gates = [gate["conditionType"] for gate in spec.get("readinessGates", ())]
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    runs = {"running": {"startedAt": now}}
    stays = [each.get("restartPolicy") == "Always" for each in spec.get("initContainers", ())]
    return {
        "phase": "Running",
        "startTime": now,
        "hostIP": HOST,
        "hostIPs": [{"ip": HOST}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [{"type": kind, "status": "True", "lastTransitionTime": now} for kind in (*CONDITIONS, *gates)],
        "containerStatuses": [_container(each, runs) for each in spec["containers"]],
        "initContainerStatuses": [
            _container(each, runs if stay else ended)
            for each, stay in zip(spec.get("initContainers", ()), stays, strict=True)
        ],
    }


def _succeeded(pod: Manifest, now: str) -> dict[str, Any]:
    ended = {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": now, "finishedAt": now}}
    return {
        "phase": "Succeeded",
        "containerStatuses": [_container(each, ended) | {"ready": False} for each in pod["spec"]["containers"]],
    }


def _container(container: Manifest, state: dict[str, Any]) -> dict[str, Any]:
    told = {"name": container["name"], "image": container["image"], "imageID": "", "restartCount": 0}
    return {**told, "ready": True, "started": "running" in state, "state": state}


async def main(url: str, pki: str, network: str) -> None:
    """Be the kubelets of the nodes of an API server."""
    async with Client(url, Path(pki)) as client:
        await client.list(BOUND)
        print(FOLLOWS, flush=True)
        await Kubelets(client, network).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
