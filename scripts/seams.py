"""Run the tests of upstream's seams where upstream is: in the runtime image, as a pod of the local cluster.

`make test-image` and the stage `seams` of `make test` run it. The image holds no test tools, so pytest, at the locked
version, is mounted from this machine, as the tests are.
"""

from __future__ import annotations

import json
import subprocess
import sys

from scripts.demo.commands import ROOT, Kubernetes, Manifest, capture
from scripts.demo.errors import DemoError
from scripts.product import local_kubernetes

NAME = "rljob-seams"
NAMESPACE = "default"
IMAGE = "rljob.local/runtime:cpu"
TOOLS = ROOT / "build" / "seams"
TIMEOUT_SECONDS = 900


def pod() -> Manifest:
    """The pod that runs the tests."""
    # The repository's own settings name plug-ins that are not mounted.
    pytest = ["python", "-m", "pytest", "-c", "/dev/null", "--rootdir", "/tests", "--import-mode", "importlib"]
    mounts = {"tests": str(ROOT / "runtime/tests/upstream"), "tools": str(TOOLS)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "activeDeadlineSeconds": TIMEOUT_SECONDS,
            "containers": [
                {
                    "name": "pytest",
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "command": [*pytest, "-p", "no:cacheprovider", "-ra", "--color", "no", "/tests"],
                    "env": [{"name": "RLJOB_IN_IMAGE", "value": "1"}, {"name": "PYTHONPATH", "value": "/tools"}],
                    "volumeMounts": [{"name": name, "mountPath": f"/{name}", "readOnly": True} for name in mounts],
                }
            ],
            "volumes": [{"name": name, "hostPath": {"path": path}} for name, path in mounts.items()],
        },
    }


def install_tools() -> None:
    """Put pytest, as locked, into a folder of its own."""
    uv = str(ROOT / ".venv/bin/uv")
    capture(
        (uv, "pip", "install", "--quiet", "--target", str(TOOLS), "-c", "requirements/dev.txt", "pytest"), seconds=120
    )


def run(kubernetes: Kubernetes) -> bool:
    """Run the pod, show what pytest says as it says it; whether all passed."""
    kubernetes.run("delete", "pod", NAME, "--namespace", NAMESPACE, "--ignore-not-found", "--now")
    kubernetes.run("create", "--filename", "-", text=json.dumps(pod()))
    named = ("--namespace", NAMESPACE, f"pod/{NAME}")
    try:
        kubernetes.run("wait", *named, "--for=condition=Ready", "--timeout=120s", timeout_seconds=130)
        words = (kubernetes.kubectl, "logs", "--follow", *named)
        subprocess.run(words, env=kubernetes.environment, timeout=TIMEOUT_SECONDS, check=False)
        kubernetes.run("wait", *named, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=10s")
    except DemoError:
        print(kubernetes.run("describe", *named))
        return False
    finally:
        kubernetes.run("delete", *named, "--ignore-not-found", "--now", "--wait=false")
    return True


def main() -> int:
    """Run the tests."""
    try:
        install_tools()
        return 0 if run(local_kubernetes()) else 1
    except DemoError as error:
        print(f"seams: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
