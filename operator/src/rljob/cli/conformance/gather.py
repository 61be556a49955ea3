"""Read the cluster for the claims, through kubectl. What the caller may not read is None."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from rljob.api.v1alpha1 import GROUP
from rljob.cli import kubectl
from rljob.cli.conformance.facts import ClusterFacts, PodFacts
from rljob.cli.conformance.manifests import CHECKPOINTS, LABEL
from rljob.cli.conformance.run_judges import names_of
from rljob.cli.errors import UsageError
from rljob.cluster.manifests import controller_uid
from rljob.core.observed import Manifest
from rljob.render import labels
from rljob_runtime.contract import parse_foreign_json

OPERATOR = "app.kubernetes.io/part-of=rljob,app.kubernetes.io/component=operator"
"""Labels of the chart: charts/rljob-operator/templates/_helpers.tpl."""
KUBERAY = (
    ("--selector", "app.kubernetes.io/component=kuberay-operator"),
    ("--selector", "app.kubernetes.io/name=kuberay-operator"),
    ("--field-selector", "metadata.name=kuberay-operator"),
)
"""How to find KubeRay: by the labels of its installations, else by its usual name."""
EXEC_SECONDS = 60
KILL = "import os, signal; os.kill(-1, signal.SIGKILL)"
"""All but the first process, which ends without them. A deleted pod would run its preStop hook, which saves."""
CREATED = (f"rljobs.{GROUP}", "configmaps", "persistentvolumeclaims", "pods")
"""Resources of the objects that a run creates itself."""


@dataclass(frozen=True)
class Container:
    """A Ray container of the job."""

    pod: str
    name: str


def read_cluster(place: kubectl.Place) -> ClusterFacts:
    """Read what exists before the run."""
    everywhere = kubectl.EVERYWHERE
    return ClusterFacts(
        now=time.time(),
        kubernetes=_server_version(place),
        crds=kubectl.list_readable("customresourcedefinitions.apiextensions.k8s.io", place),
        operators=kubectl.list_readable("deployments.apps", place, everywhere, "--selector", OPERATOR),
        leases=kubectl.list_readable("leases.coordination.k8s.io", place, everywhere),
        kuberay=_kuberay(place),
        storage_classes=kubectl.list_readable("storageclasses.storage.k8s.io", place),
        nodes=kubectl.list_readable("nodes", place),
        queues=kubectl.list_readable("localqueues.kueue.x-k8s.io", place),
        volcano=kubectl.list_readable("podgroups.scheduling.volcano.sh", place) is not None,
    )


def _kuberay(place: kubectl.Place) -> Sequence[Manifest] | None:
    found: Sequence[Manifest] | None = None
    for options in KUBERAY:
        found = kubectl.list_readable("deployments.apps", place, kubectl.EVERYWHERE, *options)
        if found:
            break
    return found


def _server_version(place: kubectl.Place) -> str:
    try:
        answer = json.loads(kubectl.run(["version", "--output", "json"], place))
    except (UsageError, ValueError):
        return ""
    return str((answer.get("serverVersion") or {}).get("gitVersion", ""))


def read_pods(name: str, place: kubectl.Place) -> PodFacts:
    """Read what head and worker of the running job have."""
    try:
        head, worker = _container(name, "head", place), _container(name, "worker", place)
        on_head, on_worker = _look(head, place, CHECKPOINTS), _look(worker, place)
    except UsageError as error:
        return PodFacts(problem=str(error))
    folder = on_head.get("checkpoints") or {}
    return PodFacts(
        progress=on_head.get("progress") or {},
        metrics=on_head.get("metrics") or {},
        checkpoints=folder.get("steps") or (),
        tracker=folder.get("tracker") or "",
        hccl=on_worker.get("hccl") or {},
        versions=on_worker.get("versions") or {},
        problem="; ".join(filter(None, (on_head["problem"], on_worker["problem"]))),
    )


def _look(container: Container, place: kubectl.Place, *words: str) -> dict[str, Any]:
    script = (resources.files(__package__) / "in_pod.py").read_text(encoding="utf-8")
    command = ["exec", container.pod, "--container", container.name, "--", "python", "-c", script, *words]
    try:
        found: dict[str, Any] = parse_foreign_json(kubectl.run(command, place, seconds=EXEC_SECONDS).splitlines()[-1])
    except (ValueError, IndexError) as error:
        raise UsageError(f"pod {container.pod}: the answer of python is not JSON ({error})") from error
    return found


def _container(name: str, role: str, place: kubectl.Place) -> Container:
    pods = [
        pod
        for pod in kubectl.find_pods(f"{labels.JOB}={name},{labels.RAY_NODE_TYPE}={role}", place)
        if (pod.get("status") or {}).get("phase") == "Running"
        and "deletionTimestamp" not in pod["metadata"]
        # Anybody who may create Deployments can have pods with these labels.
        and controller_uid(pod, "RayCluster") is not None
    ]
    if not pods:
        raise UsageError(f"{name} has no running {role} pod")
    newest = max(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"]))
    return Container(newest["metadata"]["name"], f"ray-{role}")


def kill_worker(name: str, place: kubectl.Place) -> str:
    """Kill every process of the running worker container, and return its pod."""
    worker = _container(name, "worker", place)
    command = ["exec", worker.pod, "--container", worker.name, "--", "python", "-c", KILL]
    try:
        kubectl.run(command, place, seconds=EXEC_SECONDS)
    except kubectl.UnreadableError:
        raise
    except UsageError:
        # The connection may end with the container.
        pass
    return worker.pod


def ray_pods(name: str, place: kubectl.Place) -> list[str]:
    """Return the names of the job's Ray pods."""
    return names_of(kubectl.find_pods(f"{labels.JOB}={name},{labels.RAY_CLUSTER}", place))


def left_objects(run: str, name: str, place: kubectl.Place) -> list[str]:
    """Return what is left of a run: what it created, and the pods of its job."""
    found = []
    for resource in CREATED:
        kind = resource.partition(".")[0].removesuffix("s")
        found += [
            f"{kind}/{one}" for one in names_of(kubectl.list_items(resource, place, "--selector", f"{LABEL}={run}"))
        ]
    return [*found, *(f"pod/{one}" for one in names_of(kubectl.find_pods(f"{labels.JOB}={name}", place)))]
