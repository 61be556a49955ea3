"""What the operator's account may do with pods, on a real API server: as in test_operator_policies.py."""

from __future__ import annotations

import time

import pytest
from builders import Json
from contract.conftest import KUBECONFIG
from contract.operator_site import OperatorSite, existing_job

from rljob.render.labels import JOB
from rljob.render.names import JobIdentity

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]


@pytest.fixture(scope="module")
def site(installation: OperatorSite) -> OperatorSite:
    return installation


@pytest.fixture(scope="module")
def job(site: OperatorSite) -> JobIdentity:
    return existing_job(site, "grace")


def test_the_operator_shortens_the_grace_period_of_terminating_pods_of_jobs_only(
    site: OperatorSite, job: JobIdentity
) -> None:
    cluster = {"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "c", "uid": job.uid, "controller": True}
    deployed = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": job.uid, "controller": True}
    pods = {
        "of-a-cluster": ({JOB: "sums"}, cluster, True, ""),
        "that-runs": ({JOB: "sums"}, cluster, False, "already being deleted"),
        "without-label": ({}, cluster, True, "of a pod of a job"),
        "of-a-deployment": ({}, deployed, False, "controlled by a RayCluster"),
        "of-a-deployment-with-the-label": ({JOB: "sums"}, deployed, True, "controlled by a RayCluster"),
    }
    folder = f"/api/v1/namespaces/{job.namespace}/pods"
    # A pod without a node has no grace period that could be shortened.
    spec: Json = {"containers": [{"name": "c", "image": "registry.example/x:1"}], "nodeName": f"{site.id}-none"}
    try:
        for name, (marks, controller, terminating, says) in pods.items():
            # The owner does not exist; the finalizer keeps the pod from the garbage collector.
            metadata: Json = {"name": name, "namespace": job.namespace, "labels": marks}
            metadata["finalizers"] = ["rljob.dev/test"]
            body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
            if terminating:
                metadata["ownerReferences"] = [controller]
            _create_pod(site, body)
            if terminating:
                site.do("delete", "pod", name, "-n", job.namespace, "--wait=false")
            options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 1}
            said = site.raw("delete", f"{folder}/{name}", options)
            assert (says in said) if says else said == "", (name, said)
    finally:
        for name in pods:
            drop = ("--type=merge", "-p", '{"metadata":{"finalizers":null}}')
            site.ask("patch", "pod", name, "-n", job.namespace, *drop)
            site.ask("delete", "pod", name, "-n", job.namespace, "--wait=false")


def _create_pod(site: OperatorSite, body: Json) -> None:
    """Create a pod as soon as the namespace has its ServiceAccount."""
    deadline = time.monotonic() + 60
    while (said := site.ask("create", "-f", "-", body=body).stderr) and "serviceaccount" in said:
        assert time.monotonic() < deadline, said
        time.sleep(0.2)
    assert said == ""
