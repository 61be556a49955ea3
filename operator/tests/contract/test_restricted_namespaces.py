"""Pods of jobs and of the operator in namespaces with Pod Security labels, on a real API server."""

from __future__ import annotations

import copy
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace

import pytest
from builders import IDENTITY, Json, merged, small_spec, typed
from contract.conftest import KUBECONFIG
from contract.policy_site import Site
from corpus.bad import template

from rljob.api.v1alpha1 import RLJobSpec
from rljob.reading.kept_records import reader_pod
from rljob.render.image_check import ImageCheck, build_pod
from rljob.render.initializer import build_initializer, initializers
from rljob.render.raycluster import build_raycluster
from tests.chart import helm

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]
LEVELS = ("restricted", "baseline", "privileged")
EVERYTHING: Json = {
    "code": {"type": "Git", "git": {"url": "https://git.example/r.git", "revision": "a" * 40}},
    "initializers": [{"name": "get", "command": ["x"]}],
    "services": [{"name": "judge", "image": "registry.example/judge:1", "port": 9000}],
}
WHOLE_NODE: Json = {"accelerator": {"class": "atlas-a3"}, "workerGroups": [{"name": "trainer", "devicesPerNode": 16}]}
NOTHING_MOUNTED: Json = {"accelerator": {"driverMounts": "None"}}
RECORDS: Json = merged(
    template(
        {
            "volumes": [{"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}}],
            "volumeMounts": [{"name": "runs", "mountPath": "/runs"}],
        }
    ),
    {"observability": {"logPath": "/runs/logs"}},
)
NON_ROOT: Json = {"template": {"securityContext": {"runAsNonRoot": True}}}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """Return a namespace for each level, named after it."""
    made = Site(f"ps{uuid.uuid4().hex[:6]}")
    try:
        for level in LEVELS:
            metadata = {"name": made.namespace(level), "labels": {"pod-security.kubernetes.io/enforce": level}}
            made.do("create", "-f", "-", body={"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        deadline = time.monotonic() + 60
        for level in LEVELS:
            while made.ask("get", "serviceaccount", "default", "-n", made.namespace(level)).returncode:
                assert time.monotonic() < deadline, "the namespace has no ServiceAccount"
                time.sleep(0.2)
        yield made
    finally:
        for level in LEVELS:
            made.do("delete", "namespace", made.namespace(level), "--wait=false", "--ignore-not-found")


def pod(spec: Json) -> Json:
    """Return a pod; objects that it names need not exist, except its account and what changes its spec."""
    own = {name: value for name, value in spec.items() if name not in ("serviceAccountName", "runtimeClassName")}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {}, "spec": own}


def pods_of(spec: RLJobSpec) -> dict[str, Json]:
    """Return the pods that KubeRay and the controller of Jobs make for a job."""
    cluster = build_raycluster(IDENTITY, spec, 1, "digest")["spec"]
    made = {"head": pod(cluster["headGroupSpec"]["template"]["spec"])}
    for group in cluster["workerGroupSpecs"]:
        worker = copy.deepcopy(group["template"]["spec"])
        ray = worker["containers"][0]
        # KubeRay v1.6.2, ray-operator/controllers/ray/common/pod.go, line 367: image, variables, mounts and security
        # context are those of the Ray container.
        waits = {name: ray[name] for name in ("image", "env", "volumeMounts", "securityContext") if name in ray}
        worker["initContainers"] = [*worker.get("initContainers", ()), {"name": "wait-gcs-ready", **waits}]
        made["worker"] = pod(worker)
    for each in initializers(spec):
        made[f"initializer {each.name}"] = pod(build_initializer(IDENTITY, spec, each)["spec"]["template"]["spec"])
    return made


def strictest(site: Site, pods: dict[str, Json]) -> str:
    """Return the strictest level of a namespace in which all of these pods can be created."""
    for level in LEVELS:
        refused = site.refused(level, None, pods)
        if not refused:
            return level
        assert all("violates PodSecurity" in said for said in refused.values()), refused
    raise AssertionError("the API server refuses the pods everywhere")


def job(*changes: Json) -> dict[str, Json]:
    return pods_of(typed(small_spec(merged(EVERYTHING, *changes))))


def test_a_job_on_cpus_with_code_an_initializer_and_a_service_is_restricted(site: Site) -> None:
    pods = job()
    assert len(pods) >= 4
    assert site.refused("restricted", None, pods) == {}
    saved = {"checkpoint": {"path": "/data/c", "everySteps": 5}, "runtime": {"injection": "Never"}}
    assert site.refused("restricted", None, job(saved)) == {}


def test_root_is_possible_where_the_namespace_allows_it(site: Site) -> None:
    root = {"template": {"securityContext": {"runAsUser": 0}}}
    group = {"name": "trainer", "nodes": 1, "devicesPerNode": 2, **root}
    assert strictest(site, job({"head": root, "workerGroups": [group]})) == "baseline"


def test_a_job_on_npus_needs_what_its_driver_needs(site: Site) -> None:
    group = WHOLE_NODE["workerGroups"][0]
    non_root = {"head": NON_ROOT, "workerGroups": [{**group, **NON_ROOT}]}
    assert strictest(site, job(WHOLE_NODE, NOTHING_MOUNTED)) == "baseline"
    assert strictest(site, job(WHOLE_NODE, NOTHING_MOUNTED, non_root)) == "restricted"
    host = {"network": {"mode": "Host"}}
    assert strictest(site, job(WHOLE_NODE, NOTHING_MOUNTED, host)) == "privileged"


@pytest.mark.parametrize("mode", ["RuntimeClass", "HostPath"])
def test_only_the_folders_of_the_driver_keep_a_job_on_npus_from_baseline(site: Site, mode: str) -> None:
    # Ascend Docker Runtime leaves out files that the pods mount from the node.
    pods = job(WHOLE_NODE, {"accelerator": {"driverMounts": mode}})
    refused = site.refused("baseline", None, pods)
    assert set(refused) == {"worker"}
    assert "hostPath volumes" in refused["worker"]
    worker = pods["worker"]["spec"]
    worker["volumes"] = [volume for volume in worker["volumes"] if "hostPath" not in volume]
    for each in (*worker["containers"], *worker["initContainers"]):
        names = {volume["name"] for volume in worker["volumes"]}
        each["volumeMounts"] = [mount for mount in each.get("volumeMounts", ()) if mount["name"] in names]
    assert site.refused("baseline", None, {"without them": pods["worker"]}) == {}


def test_the_pods_of_the_command_line_are_restricted(site: Site) -> None:
    check = ImageCheck("x.example/verl:1", "x.example/operator:1", seconds=300, user=65532)
    pods = {
        "check-image": pod(build_pod(check, "check")["spec"]),
        "report": pod(reader_pod(IDENTITY, typed(small_spec(RECORDS)), "reader")["spec"]),
    }
    assert strictest(site, pods) == "restricted"
    assert strictest(site, {"as root": pod(build_pod(replace(check, user=0), "check")["spec"])}) == "baseline"


def test_the_operators_pod_is_restricted(site: Site) -> None:
    deployment = helm.pick(helm.render(), "Deployment")
    assert strictest(site, {"operator": pod(deployment["spec"]["template"]["spec"])}) == "restricted"
