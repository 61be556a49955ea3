"""The chart on the local cluster: accepted, installed, upgraded under a running job, and uninstalled without data loss.

It replaces the release that the demo uses, and leaves none behind; CRDs and the token key are kept.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from scripts.release.manifest import install_text
from tests.chart.helm import CHART, NAMESPACE, RELEASE, Answer, helm, render
from tests.cluster import programs
from tests.cluster.paths import REPOSITORY
from tests.cluster.shell import run
from tests.e2e import quickstart
from tests.kube import Kube, Manifest, wait_for

pytestmark = pytest.mark.e2e

JOBS_NAMESPACE = "rljob-chart"
CRD = "rljobs.rljob.dev"


@pytest.fixture(scope="module")
def kube() -> Kube:
    kubeconfig = run([sys.executable, "-m", "tests.cluster", "kubeconfig"], folder=REPOSITORY).strip()
    return Kube(str(programs.binary("kube", "kubectl")), kubeconfig, NAMESPACE)


@pytest.fixture(scope="module")
def release(kube: Kube) -> Iterator[Kube]:
    """Install the chart, and create a namespace for jobs."""
    uninstall(kube)
    kube.delete("namespace", JOBS_NAMESPACE)
    kube.run("create", "namespace", JOBS_NAMESPACE)
    # Another test may have applied the CRDs by hand.
    adopt = ("--take-ownership", "--force-conflicts")
    on_cluster(kube, "install", RELEASE, CHART, "--create-namespace", *adopt, "--wait", "--timeout", "180s")
    yield kube
    kube.delete("namespace", JOBS_NAMESPACE)
    uninstall(kube)


def on_cluster(kube: Kube, *words: str | Path) -> Answer:
    answer = helm(*words, "--namespace", NAMESPACE, kubeconfig=Path(kube.kubeconfig))
    assert answer.code == 0, answer.stderr
    return answer


def uninstall(kube: Kube) -> None:
    on_cluster(kube, "uninstall", RELEASE, "--ignore-not-found", "--wait", "--timeout", "120s")


def token_key(kube: Kube) -> str:
    secret = kube.get("secret", f"{RELEASE}-token-key")
    assert secret is not None
    return str(secret["data"]["key"])


def a_cluster_that_cannot_start(kube: Kube) -> Manifest:
    """Apply a job whose image does not exist; return its RayCluster, which waits forever."""
    jobs, image = kube.in_namespace(JOBS_NAMESPACE), "rljob.local/no-such-image:1"
    jobs.apply(quickstart.variant("waits", runtime__image=image, initializers=[], code={"type": "Image"}))
    return wait_for("a RayCluster", lambda: next(iter(jobs.find("rayclusters")), None), 60)


@pytest.mark.parametrize("profile", ["default", "namespaced", "install.yaml"])
def test_the_api_server_accepts_every_object(kube: Kube, profile: str) -> None:
    # Objects of these namespaces require them to exist; the dry run creates nothing.
    kube.run("apply", "-f", "-", text=f"{{apiVersion: v1, kind: Namespace, metadata: {{name: {NAMESPACE}}}}}")
    words = [] if profile == "default" else ["--set", f"operator.watchNamespace={NAMESPACE}"]
    text = install_text() if profile == "install.yaml" else yaml.safe_dump_all(render(*words))
    said = dry_run(kube, text)
    assert len(said) == len([document for document in yaml.safe_load_all(text) if document])
    with pytest.raises(AssertionError, match=r"spec\.replica\b"):
        dry_run(kube, text.replace("  replicas: 1\n", "  replica: 1\n"))


def dry_run(kube: Kube, text: str) -> list[str]:
    """Ask the API server whether it accepts the objects; return a line for each."""
    words = ("apply", "--server-side", "--dry-run=server", "--force-conflicts", "--validate=strict", "-f", "-")
    return kube.run(*words, text=text).splitlines()


def test_the_operator_becomes_ready_and_unprivileged(release: Kube) -> None:
    pods = release.find("pods", f"app.kubernetes.io/instance={RELEASE}")
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    assert len(living) == 1
    status = living[0]["status"]["containerStatuses"][0]
    assert status["ready"]
    assert status["restartCount"] == 0
    said = release.run("exec", living[0]["metadata"]["name"], "--", "id", "-u")
    assert said.strip() == "65532"


def test_the_operator_may_not_read_secrets_nor_touch_other_leases(release: Kube) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:{RELEASE}"

    def may(*words: str) -> bool:
        return release.run("auth", "can-i", *words, account, "--warnings-as-errors=false", "-q") == ""

    assert may("create", "secrets", "-n", JOBS_NAMESPACE)
    secrets, nodes = (("get", "secrets"), ("list", "secrets")), (("patch", "nodes"), ("update", "nodes"))
    for forbidden in (*secrets, *nodes, ("update", "rayclusters.ray.io"), ("update", "pods")):
        with pytest.raises(AssertionError):
            may(*forbidden, "-n", JOBS_NAMESPACE)
    with pytest.raises(AssertionError):
        may("get", "leases", "-n", JOBS_NAMESPACE)


def test_the_operator_may_hurry_a_pod_of_a_job_that_goes_and_delete_no_other(release: Kube) -> None:
    account = f"--as=system:serviceaccount:{NAMESPACE}:{RELEASE}"
    # No kubelet serves the node, so nothing ends the pods.
    spec = {"nodeName": "nowhere", "terminationGracePeriodSeconds": 600, "containers": [{"name": "a", "image": "a"}]}
    head = {"rayStartParams": {}, "template": {"spec": {"containers": [{"name": "ray-head", "image": "a"}]}}}
    kind = {"apiVersion": "ray.io/v1", "kind": "RayCluster"}
    release.apply({**kind, "metadata": {"name": "of-a-job"}, "spec": {"suspend": True, "headGroupSpec": head}})
    cluster = release.get("raycluster", "of-a-job")
    assert cluster is not None
    owner = {**kind, "name": "of-a-job", "uid": cluster["metadata"]["uid"], "controller": True}
    for name, labels, owners in (("of-a-job", {"rljob.dev/job": "sums"}, [owner]), ("of-others", {}, [])):
        metadata = {"name": name, "labels": labels, "ownerReferences": owners}
        release.apply({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})

    def grace_after(name: str, *words: str) -> int | None:
        release.run("delete", "pod", name, "--wait=false", *words)
        return ((release.get("pod", name) or {}).get("metadata") or {}).get("deletionGracePeriodSeconds")

    for name in ("of-a-job", "of-others"):
        with pytest.raises(AssertionError, match="already being deleted"):
            grace_after(name, "--grace-period=1", account)
        assert grace_after(name) == 600
    assert grace_after("of-a-job", "--grace-period=1", account) == 1
    with pytest.raises(AssertionError, match="already being deleted"):
        grace_after("of-others", "--grace-period=1", account)
    release.run("delete", "pod", "of-a-job", "of-others", "--force", "--grace-period=0")
    release.delete("raycluster", "of-a-job")


def test_the_recipes_of_the_release_are_there_and_those_of_others_stay(release: Kube) -> None:
    files = [yaml.safe_load(path.read_text()) for path in (CHART / "recipes").glob("*.yaml")]
    wanted = {recipe["metadata"]["name"] for recipe in files}

    def built_in() -> set[str]:
        return {found["metadata"]["name"] for found in release.find("clusterrlrecipes", "rljob.dev/built-in")}

    wait_for("the built-in recipes", lambda: built_in() == wanted, 60)
    own = {"apiVersion": "rljob.dev/v1alpha1", "kind": "ClusterRLRecipe", "metadata": {"name": "of-a-site"}}
    release.apply({**own, "spec": {"template": {}}})
    label = f"rljob.dev/built-in={NAMESPACE}.{RELEASE}"
    gone = {**own, "metadata": {"name": "of-the-last-release", "labels": dict([label.split("=")])}}
    release.apply({**gone, "spec": {"template": {}}})
    release.run("rollout", "restart", f"deployment/{RELEASE}")
    wait_for("the operator's clean-up", lambda: built_in() == wanted, 120)
    assert release.get("clusterrlrecipe", "of-a-site") is not None
    release.delete("clusterrlrecipe", "of-a-site")


def test_an_upgrade_touches_neither_key_nor_crd_nor_running_job(release: Kube) -> None:
    key, crd = token_key(release), release.get("crd", CRD)
    cluster = a_cluster_that_cannot_start(release)
    on_cluster(release, "upgrade", RELEASE, CHART, "--set", "operator.workers=4", "--wait", "--timeout", "180s")
    jobs = release.in_namespace(JOBS_NAMESPACE)
    after = jobs.find("rayclusters")
    assert [found["metadata"]["uid"] for found in after] == [cluster["metadata"]["uid"]]
    assert after[0]["metadata"]["generation"] == cluster["metadata"]["generation"]
    assert token_key(release) == key
    kept = release.get("crd", CRD)
    assert crd is not None
    assert kept is not None
    assert kept["metadata"]["uid"] == crd["metadata"]["uid"]


def test_uninstalling_keeps_crd_key_and_jobs_and_a_new_installation_finds_them(release: Kube) -> None:
    cluster = a_cluster_that_cannot_start(release)
    key = token_key(release)
    uninstall(release)
    jobs = release.in_namespace(JOBS_NAMESPACE)
    assert release.find("deployments") == []
    assert jobs.get("rljob", "waits") is not None
    assert token_key(release) == key
    on_cluster(release, "install", RELEASE, CHART, "--wait", "--timeout", "180s")
    assert token_key(release) == key
    assert [found["metadata"]["uid"] for found in jobs.find("rayclusters")] == [cluster["metadata"]["uid"]]


def test_two_installations_for_one_namespace_each_share_a_cluster(kube: Kube) -> None:
    namespaces = ("rljob-chart-one", "rljob-chart-two")

    def release_in(namespace: str, *words: str | Path) -> Answer:
        return helm(*words, "--namespace", namespace, kubeconfig=Path(kube.kubeconfig))

    try:
        for namespace in namespaces:
            values = f"operator.watchNamespace={namespace},crds.enabled=false"
            done = release_in(namespace, "install", RELEASE, CHART, "--create-namespace", "--set", values)
            assert done.code == 0, done.stderr
    finally:
        for namespace in namespaces:
            release_in(namespace, "uninstall", RELEASE, "--ignore-not-found", "--wait", "--timeout", "120s")
            kube.delete("namespace", namespace, wait=False)
