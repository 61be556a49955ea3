"""Services that a job shares, under the policies on the operator's account, on a real API server.

As in test_operator_policies.py, requests are sent with the real roles of a release: its policies alone reject them.
"""

from __future__ import annotations

import json

import pytest
from builders import Json, small_spec, typed
from contract.conftest import KUBECONFIG
from contract.operator_site import MIGHTY, OperatorSite, existing_job, owner, sent
from contract.policy_site import named
from corpus.bad import merged

from rljob.render.labels import JOB_UID
from rljob.render.names import JobIdentity
from rljob.render.shared_services import build_shared_services

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]


@pytest.fixture(scope="module")
def site(installation: OperatorSite) -> OperatorSite:
    return installation


@pytest.fixture(scope="module")
def job(site: OperatorSite) -> JobIdentity:
    """Return a job that exists, so that the garbage collector keeps its children."""
    return existing_job(site, "sharing")


def pods(deployment: Json, change: Json) -> Json:
    """Return a Deployment with a change of its pods."""
    return merged(deployment, {"spec": {"template": {"spec": change}}})


def shared_services(job: JobIdentity) -> dict[str, Json]:
    """Return the objects of a shared service by their kind."""
    service = {"name": "judge", "image": "judge:1", "port": 8000, "placement": "Shared"}
    made = build_shared_services(job, typed(small_spec({"services": [service]})), 1)
    return {manifest["kind"]: manifest for manifest in made}


def forbidden_services(job: JobIdentity) -> dict[str, tuple[Json, str]]:
    """Return shared services that the operator's roles allow and its policies do not, and a part of the answer."""
    made = shared_services(job)
    deployment, service, policy = made["Deployment"], made["Service"], made["NetworkPolicy"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    none, node, more = "its controller is no RLJob", "would use a node", "its containers would be privileged"
    projected = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    secret, folder = {"name": "s", "secret": {"secretName": "s"}}, {"name": "n", "hostPath": {"path": "/"}}
    changes: dict[str, tuple[Json, str]] = {
        "with a token": ({"automountServiceAccountToken": True}, "would get a token of a ServiceAccount"),
        "with a projected token": ({"volumes": [projected]}, "volumes that no job may ask for"),
        "with a volume of a Secret": ({"volumes": [secret]}, "volumes that no job may ask for"),
        "with a folder of a node": ({"volumes": [folder]}, "volumes that no job may ask for"),
        "on the node's network": ({"hostNetwork": True}, node),
        "among the node's processes": ({"hostPID": True}, node),
        "in the node's memory": ({"hostIPC": True}, node),
        "on a node of its choice": ({"nodeName": "control-plane"}, node),
        "that is privileged": (
            {
                "containers": [
                    merged(container, {"securityContext": {"privileged": True, "allowPrivilegeEscalation": None}})
                ]
            },
            more,
        ),
        "with a privileged init container": (
            {"initContainers": [{"name": "a", "image": "a", "securityContext": {"privileged": True}}]},
            more,
        ),
        "with a capability": (
            {"containers": [merged(container, {"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}})]},
            more,
        ),
        "with a port of the node": (
            {"containers": [container | {"ports": [{"containerPort": 80, "hostPort": 80}]}]},
            more,
        ),
    }
    for_others = {"spec": {"selector": {JOB_UID: "0" * 36}}}
    return {
        **{f"a Deployment {key}": (pods(deployment, change), says) for key, (change, says) in changes.items()},
        "a Deployment of nobody": (merged(deployment, {"metadata": {"ownerReferences": None}}), none),
        "a Deployment of another name": (named(deployment, "coredns"), "is not that of a child of its RLJob"),
        "a Service of nobody": (merged(service, {"metadata": {"ownerReferences": None}}), none),
        "a Service for other pods": (merged(service, for_others), "of type ClusterIP for the pods of their own RLJob"),
        "a Service of another type": (merged(service, {"spec": {"type": "NodePort"}}), "of type ClusterIP"),
        "a Service with an address of its choice": (
            merged(service, {"spec": {"externalIPs": ["192.0.2.1"]}}),
            "of type ClusterIP",
        ),
        "a NetworkPolicy of a service for all pods": (
            merged(policy, {"spec": {"podSelector": {"matchLabels": None}}}),
            "for the pods of their own RLJob",
        ),
    }


def test_the_operator_creates_no_other_services_than_those_of_a_job(site: OperatorSite, job: JobIdentity) -> None:
    assert sent(site, site.operator, shared_services(job)) == {}
    attacks = forbidden_services(job)
    answers = sent(site, site.operator, {key: manifest for key, (manifest, _) in attacks.items()})
    for key, (_, says) in attacks.items():
        assert "denied request" in answers.get(key, "passed"), (key, answers.get(key))
        assert says in answers[key], key


def test_the_operator_deletes_the_shared_services_of_jobs_only(site: OperatorSite, job: JobIdentity) -> None:
    for kind, own in shared_services(job).items():
        foreign = named(merged(own, {"metadata": {"ownerReferences": None}}), f"somebodys-{kind.lower()}")
        site.do("create", "-f", "-", user=site.operator, body=own)
        site.do("create", "-f", "-", body=foreign)
        where, name = ("-n", job.namespace, kind.lower()), own["metadata"]["name"]
        assert site.rejected("delete", *where, name, user=site.operator) == ""
        said = site.rejected("delete", *where, foreign["metadata"]["name"], user=site.operator)
        assert "its controller is no RLJob" in said


def test_nobody_makes_services_that_the_operator_would_adopt(site: OperatorSite, job: JobIdentity) -> None:
    says = "may only be written by the operator"
    for kind, manifest in shared_services(job).items():
        if kind == "NetworkPolicy":
            continue
        assert says in site.rejected("create", "-f", "-", user=MIGHTY, body=named(manifest, f"forged-{kind.lower()}"))
        own = named(merged(manifest, {"metadata": {"ownerReferences": None}}), f"own-{kind.lower()}")
        site.do("create", "-f", "-", user=MIGHTY, body=own)
        add = json.dumps({"metadata": {"ownerReferences": [owner(job.name, job.uid)]}})
        where = ("-n", job.namespace, kind.lower(), own["metadata"]["name"], "--type=merge", "-p", add)
        for words in ((), ("--subresource=status",)):
            assert says in site.rejected("patch", *where, *words, user=MIGHTY), (kind, words)
