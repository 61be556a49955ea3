"""Namespaces that enforce the Pod Security Standard `restricted`: the operator's, and one with a job on CPUs.

The job has code in Git, an initializer and a service, so each kind of container that the operator makes runs there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from rljob.core.attempts.start_diagnosis import StartReason, diagnose
from tests.e2e import quickstart, recorded_run, runs
from tests.e2e.recorded_run import Record
from tests.e2e.test_pod_contents import GIT_SERVER, OPERATOR_IMAGE
from tests.kube import Kube, KubectlError, Manifest, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle, pytest.mark.timeout(600)]

NAMESPACE, NAME, STEPS = "rljob-restricted", "restricted", 3
ENFORCE = "pod-security.kubernetes.io/enforce"
OPERATOR_PODS = "app.kubernetes.io/name=rljob-operator"
SECURITY: Manifest = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.fixture(scope="module")
def restricted(admin: Kube) -> Iterator[Kube]:
    """Yield kubectl for a namespace that enforces the standard, with the quickstart's code and storage."""
    access = admin.in_namespace(NAMESPACE)
    access.delete("namespace", NAMESPACE)
    metadata = {"name": NAMESPACE, "labels": {ENFORCE: "restricted"}}
    access.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    access.apply(*quickstart.surroundings())
    yield access
    access.delete("namespace", NAMESPACE, wait=False)


def serve_git(kube: Kube) -> Manifest:
    """Serve a repository from a pod; return spec.code.git."""
    server = {
        "name": "git",
        "image": OPERATOR_IMAGE,
        "imagePullPolicy": "IfNotPresent",
        "command": ["python", "-c", GIT_SERVER],
        "securityContext": SECURITY,
    }
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "git"}, "spec": {"containers": [server]}})

    def served() -> str | None:
        try:
            words = kube.run("logs", "git").split()
        except KubectlError:
            return None
        return words[1] if words[:1] == ["commit"] else None

    revision = wait_for("the commit", served, 120)
    url = f"http://{(kube.get('pod', 'git') or {})['status']['podIP']}:8000/rewards"
    return {"url": url, "revision": revision, "subPath": "math"}


@pytest.mark.skipif(runs.VERL, reason="what the containers run is irrelevant here")
def test_a_job_with_code_an_initializer_and_a_service_runs(restricted: Kube) -> None:
    service = {"name": "files", "image": runs.IMAGE, "command": ["python", "-m", "http.server", "9000"], "port": 9000}
    job = runs.variant(
        NAME,
        code={"type": "Git", "git": serve_git(restricted)},
        initializers=[{"name": "prepare", "command": ["sh", "-c", "id -u && test $(id -u) != 0"]}],
        services=[service],
        trainer__steps=STEPS,
    )
    restricted.apply(job)
    record, containers = Record(NAME), dict[str, Manifest]()

    def ended() -> bool:
        state = recorded_run.observe(restricted, record)
        for pod in restricted.find("pods", f"rljob.dev/job={NAME}"):
            spec = pod["spec"]
            containers.update({each["name"]: each for each in (*spec["containers"], *spec.get("initContainers", ()))})
        return state in recorded_run.ENDED

    wait_for("the end of the run", ended, 300)
    assert record.status["state"] == "Succeeded", json.dumps(record.status, indent=1)
    assert record.status["progress"]["summary"] == f"{STEPS}/{STEPS}"
    own = {"exporter", "rljob-runtime", "fetch-code", "initializer", "files", "ray-head", "ray-worker"}
    assert own <= set(containers)
    for name in own | {"wait-gcs-ready"} & set(containers):
        assert SECURITY.items() <= containers[name]["securityContext"].items(), name


def test_the_kubelets_refusal_of_root_is_answered_with_the_field(kube: Kube) -> None:
    # No image of the local cluster runs as root, so the pod states the user.
    container = {"name": "ray-head", "image": OPERATOR_IMAGE, "imagePullPolicy": "IfNotPresent"}
    context = {"securityContext": {"runAsUser": 0, "runAsNonRoot": True}}
    spec = {"containers": [container | context], "automountServiceAccountToken": False}
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "as-root"}, "spec": spec})

    def refusal() -> str | None:
        found = diagnose([kube.get("pod", "as-root") or {}])
        return found.message if found.reason is StartReason.CONTAINER_CONFIG_INVALID else None

    message = wait_for("the kubelet's refusal", refusal, 60)
    assert "breaks non-root policy" in message
    assert "template.securityContext of spec.head and spec.workerGroups" in message
    kube.delete("pod", "as-root")


def test_the_operator_runs_in_a_restricted_namespace(admin: Kube) -> None:
    label = ("label", "namespace", recorded_run.OPERATOR_NAMESPACE)
    admin.run(*label, f"{ENFORCE}=restricted", "--overwrite")
    try:
        before = recorded_run.operator_pod(admin)
        admin.delete("pod", before["metadata"]["name"])

        def ready() -> bool:
            pods = [pod for pod in admin.find("pods", OPERATOR_PODS) if "deletionTimestamp" not in pod["metadata"]]
            return any(
                pod["metadata"]["uid"] != before["metadata"]["uid"]
                and {"type": "Ready", "status": "True"}.items() <= entry.items()
                for pod in pods
                for entry in pod["status"].get("conditions", ())
            )

        wait_for("a new pod of the operator", ready, 120)
    finally:
        admin.run(*label, f"{ENFORCE}-")
