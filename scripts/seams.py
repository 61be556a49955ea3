"""Run the tests of upstream's seams where upstream is: in the runtime image, as a pod of the local cluster.

`make test-image` and the stage `seams` of `make test` run it. The image holds no test tools, so pytest, at the locked
version, is mounted from this machine, as the tests are. The operator's code is not in the image either: job.json of
every example is rendered here and mounted too, to be composed with verl's real schema there.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

from rljob.build.names import JobIdentity
from rljob.cli.manifests import read_files
from rljob.cli.render import FIRST_GENERATION, STAND_IN_UID
from rljob.core.policies.validation import validate
from rljob.launchers.verl import job_config
from scripts.demo.commands import ROOT, Kubernetes, Manifest, capture
from scripts.demo.errors import DemoError
from scripts.product import local_kubernetes

NAME = "rljob-seams"
NAMESPACE = "default"
IMAGE = "rljob.local/runtime:cpu"
TOOLS = ROOT / "build" / "seams"
JOBS = ROOT / "build" / "seams-jobs"
MANIFESTS = (ROOT / "charts/rljob-operator/recipes", ROOT / "examples", ROOT / "operator/tests/golden/jobs")
TIMEOUT_SECONDS = 900


def pod() -> Manifest:
    """The pod that runs the tests."""
    # The repository's own settings name plug-ins that are not mounted.
    pytest = ["python", "-m", "pytest", "-c", "/dev/null", "--rootdir", "/tests", "--import-mode", "importlib"]
    mounts = {"tests": str(ROOT / "runtime/tests/upstream"), "tools": str(TOOLS), "jobs": str(JOBS)}
    variables = {"RLJOB_IN_IMAGE": "1", "RLJOB_JOBS": "/jobs", "PYTHONPATH": "/tools"}
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
                    "env": [{"name": name, "value": value} for name, value in variables.items()],
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


def render_jobs() -> None:
    """Write job.json of every example and golden job, as the operator renders it."""
    shutil.rmtree(JOBS, ignore_errors=True)
    JOBS.mkdir(parents=True)
    files = read_files([str(path) for folder in MANIFESTS for path in sorted(folder.rglob("*.yaml"))])
    for job in files.jobs:
        checked = validate(job.name, job.spec, files.recipes)
        if checked.spec is None:
            raise DemoError(f"{job.source}: {'; '.join(str(violation) for violation in checked.violations)}")
        identity = JobIdentity(namespace=job.namespace, name=job.name, uid=STAND_IN_UID)
        config = job_config(identity, checked.spec, FIRST_GENERATION)
        (JOBS / f"{job.name}.json").write_bytes(config.to_json())


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
        render_jobs()
        return 0 if run(local_kubernetes()) else 1
    except DemoError as error:
        print(f"seams: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
