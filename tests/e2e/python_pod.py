"""Run Python with torch and transformers in a pod that mounts the volume of the tests' jobs."""

from __future__ import annotations

import json
from typing import Any

from tests.e2e import quickstart
from tests.kube import Kube, wait_for

NAME = "read-volume"
SECONDS = 900.0


def run_python(kube: Kube, code: str, *arguments: str) -> dict[str, Any]:
    """Return the JSON object that is the last line of a program's output; fail with its log if it fails."""
    container = {
        "name": "read",
        "image": quickstart.rljob()["spec"]["runtime"]["image"],
        "command": ["python", "-c", code, *arguments],
        "volumeMounts": [{"name": "data", "mountPath": quickstart.MOUNT}],
    }
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": quickstart.CLAIM}}
    spec = {"restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": NAME}, "spec": spec})

    def ended() -> bool:
        phase = (kube.get("pod", NAME) or {}).get("status", {}).get("phase")
        assert phase != "Failed", kube.run("logs", NAME)
        return bool(phase == "Succeeded")

    wait_for("the program has ended", ended, SECONDS)
    found: dict[str, Any] = json.loads(kube.run("logs", NAME).splitlines()[-1])
    kube.delete("pod", NAME)
    return found
