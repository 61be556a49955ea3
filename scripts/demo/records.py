"""Fetching the run's records from the volume that the job wrote them to, by a pod that prints them and goes."""

from __future__ import annotations

import json
import time

from scripts.demo.commands import Kubernetes, Manifest
from scripts.demo.errors import DemoError

READ_SECONDS = 120.0


def fetch_steps(kubernetes: Kubernetes, job: Manifest) -> str:
    """Give the text of steps.jsonl of the job's last attempt."""
    spec, namespace = job["spec"], job["metadata"]["namespace"]
    attempts = (job.get("status") or {}).get("attempts") or []
    if not attempts:
        return ""
    last = attempts[-1]
    path = f"{spec['observability']['logPath']}/{last['clusterName']}/attempt-{last['number']}/steps.jsonl"
    name = f"{job['metadata']['name']}-records"
    pod = ("pod", name, "--namespace", namespace)
    kubernetes.run("delete", *pod, "--ignore-not-found", "--now")
    kubernetes.run("create", "--filename", "-", text=json.dumps(reader_pod(job, name, path)))
    try:
        _wait_for_end(kubernetes, namespace, name)
        return kubernetes.run("logs", name, "--namespace", namespace)
    finally:
        kubernetes.run("delete", *pod, "--ignore-not-found", "--now", "--wait=false")


def reader_pod(job: Manifest, name: str, path: str) -> Manifest:
    """A pod with the job's image and volumes that prints one file."""
    spec, metadata = job["spec"], job["metadata"]
    template = spec["workerGroups"][0]["template"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": metadata["namespace"]},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "volumes": template.get("volumes", []),
            "containers": [
                {
                    "name": "cat",
                    "image": spec["runtime"]["image"],
                    "command": ["cat", path],
                    "volumeMounts": template.get("volumeMounts", []),
                }
            ],
        },
    }


def _wait_for_end(kubernetes: Kubernetes, namespace: str, name: str) -> None:
    deadline = time.monotonic() + READ_SECONDS
    while time.monotonic() < deadline:
        pod = kubernetes.get("pod", name, "--namespace", namespace) or {}
        phase = pod.get("status", {}).get("phase")
        if phase == "Succeeded":
            return
        if phase == "Failed":
            raise DemoError(
                f"the run's records cannot be read: {kubernetes.run('logs', name, '-n', namespace).strip()}"
            )
        time.sleep(0.5)
    raise DemoError(f"pod {namespace}/{name}, which reads the run's records, did not end within {READ_SECONDS:.0f} s")
