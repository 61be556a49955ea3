"""What the operator's own account may do on a real API server, and what nobody else may do to its objects.

Whoever has the operator's token has its RBAC permissions; the policies narrow these to the objects of RLJobs.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator

import pytest
from builders import Json, small_spec, typed
from contract.attacks import OPEN, User
from contract.conftest import KUBECONFIG
from contract.policy_site import (
    BUILT_IN,
    OPERATOR,
    Site,
    cluster,
    controlled,
    identity,
    named,
    policy_site,
    rljob,
)

from rljob.api.v1alpha1 import API_VERSION
from rljob.render.initializer import build_initializer
from rljob.render.raycluster import build_raycluster

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]
BY_JOB = "may write and delete only objects whose controller is an RLJob"
CONFIG_MAP: Json = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"a": "b"}}
LEASE: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease"}


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with policy_site() as made:
        yield made


def initializer(site: Site, change: Json | None = None) -> Json:
    spec = typed(small_spec({"initializers": [{"name": "get", "command": ["x"]}]}))
    made = build_initializer(identity(site, OPEN), spec, spec.initializers[0])
    made["spec"]["template"]["spec"] |= change or {}
    return made


def secret(site: Site, **fields: object) -> Json:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": controlled(site), **fields}


def test_the_operator_creates_only_for_jobs(site: Site) -> None:
    anybody = {"metadata": {"namespace": site.namespace(OPEN)}}
    orphan = build_raycluster(identity(site, OPEN), typed(), 1, "digest")
    del orphan["metadata"]["ownerReferences"]
    foreign = copy.deepcopy(controlled(site))
    foreign["ownerReferences"][0]["apiVersion"] = "example.com/v1"
    token = secret(site, type="kubernetes.io/service-account-token")
    token["metadata"]["annotations"]["kubernetes.io/service-account.name"] = "default"
    sourced = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    attacks: dict[str, tuple[Json, str]] = {
        "a ConfigMap of nobody": ({**CONFIG_MAP, **anybody}, BY_JOB),
        "a ConfigMap of another kind of RLJob": ({**CONFIG_MAP, "metadata": foreign}, BY_JOB),
        "a Secret of nobody": ({"apiVersion": "v1", "kind": "Secret", **anybody}, BY_JOB),
        "a token of a ServiceAccount": (token, "only Secrets of type Opaque"),
        "registry credentials": (
            secret(site, type="kubernetes.io/dockerconfigjson", data={".dockerconfigjson": "e30="}),
            "only Secrets of type Opaque",
        ),
        "a RayCluster of nobody": (orphan, BY_JOB),
        "a Job with a token": (initializer(site, {"automountServiceAccountToken": True}), "get no token"),
        "a Job with the default": (initializer(site, {"automountServiceAccountToken": None}), "get no token"),
        "a Job with a projected token": (initializer(site, {"volumes": [sourced]}), "get no token"),
        "an event in another's name": (event(site, "kubelet"), "events only in its own name"),
    }
    answers = site.refused(OPEN, OPERATOR, {key: manifest for key, (manifest, _) in attacks.items()})
    for key, (_, said) in attacks.items():
        assert said in answers.get(key, "passed"), key


def event(site: Site, controller: str) -> Json:
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": site.namespace(OPEN)},
        "eventTime": "2026-11-27T00:00:00.000000Z",
        "reportingController": controller,
        "reportingInstance": "x",
        "action": "a",
        "reason": "r",
        "type": "Normal",
        "regarding": {"kind": "RLJob", "namespace": site.namespace(OPEN), "name": "x"},
    }


def test_what_the_operator_makes_for_a_job_passes(site: Site) -> None:
    assert site.refused(OPEN, OPERATOR, {
        "snapshot": {**CONFIG_MAP, "metadata": controlled(site)},
        "token": secret(site, stringData={"auth_token": "x"}),
        "cluster": build_raycluster(identity(site, OPEN), typed(), 1, "digest"),
        "initializer": initializer(site),
        "event": event(site, "rljob.dev/rljob-operator"),
    }) == {}  # fmt: skip


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("create configmap coredns -n kube-system --from-literal=Corefile=x", BY_JOB),
        ("create configmap aws-auth -n kube-system --from-literal=mapUsers=x", BY_JOB),
        ("delete configmap theirs", BY_JOB),
        ("delete raycluster theirs", BY_JOB),
        ("delete pod theirs", "already being deleted"),
        ("delete rljob told", "only its own finalizers"),
        ("delete clusterrlrecipe SITE-theirs", "only the ClusterRLRecipes of its own installation"),
        ('patch rljob told --type=merge -p {"spec":{"suspend":false}}', "only its own finalizers"),
        ('patch rljob told --type=merge -p {"metadata":{"annotations":{"rljob.dev/pause":"true"}}}', "only its own"),
        ('patch rljob told --type=merge -p {"metadata":{"finalizers":["example.com/x"]}}', "only its own finalizers"),
        ('patch configmap theirs --type=merge -p {"data":{"a":"c"}}', BY_JOB),
        ("delete lease theirs", "only its own Lease"),
    ],
)
def test_the_operator_leaves_the_objects_of_others_alone(site: Site, words: str, said: str) -> None:
    place = [] if " -n " in words else ["-n", site.namespace(OPEN)]
    words = words.replace("SITE", site.id)
    done = site.ask(*words.split(" "), *place, "--dry-run=server", user=OPERATOR)
    assert said in done.stderr, done


@pytest.mark.usefixtures("world")
def test_the_operator_changes_what_is_its_own(site: Site) -> None:
    place = ("-n", site.namespace(OPEN), "--dry-run=server")
    finalizer = '{"metadata":{"finalizers":["rljob.dev/final-checkpoint"]}}'
    site.do("patch", "rljob", "told", "--type=merge", "-p", finalizer, *place, user=OPERATOR)
    site.do("patch", "configmap", "record", "--type=merge", "-p", '{"data":{"a":"c"}}', *place, user=OPERATOR)
    site.do("delete", "raycluster", "ours", *place, user=OPERATOR)
    ports = named(CONFIG_MAP, f"{site.release}-ports")
    site.do("create", "-f", "-", *place, user=OPERATOR, body=ports)
    site.do("create", "-f", "-", *place, user=OPERATOR, body=named(LEASE, site.release))
    recipe = {"apiVersion": API_VERSION, "kind": "ClusterRLRecipe", "spec": {"template": {}}}
    own = {**recipe, "metadata": {"name": f"{site.id}-own", "labels": BUILT_IN}}
    site.do("create", "-f", "-", "--dry-run=server", user=OPERATOR, body=own)


@pytest.fixture(scope="module")
def world(site: Site) -> Json:
    """Create objects of a job, and others."""
    place = site.namespace(OPEN)

    def make(manifest: Json, name: str) -> Json:
        body = named(manifest, name)
        made: Json = json.loads(site.do("create", "-n", place, "-o", "json", "-f", "-", body=body))
        return made

    told = make(rljob(small_spec({"suspend": True})), "told")
    mine = copy.deepcopy(controlled(site))
    mine["ownerReferences"][0] |= {"name": "told", "uid": told["metadata"]["uid"]}
    make({**CONFIG_MAP, "metadata": mine}, "record")
    ours = build_raycluster(identity(site, OPEN), typed(), 1, "digest")
    theirs = {**ours, "metadata": {}}
    make({**ours, "metadata": {**ours["metadata"], "ownerReferences": mine["ownerReferences"]}}, "ours")
    make(theirs, "theirs")
    make(CONFIG_MAP, "theirs")
    make(LEASE, "theirs")
    container = {"name": "x", "image": "x"}
    make({"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}, "theirs")
    recipe = {"apiVersion": API_VERSION, "kind": "ClusterRLRecipe", "spec": {"template": {}}}
    site.do("create", "-f", "-", body=named(recipe, f"{site.id}-theirs"))
    return mine


def test_nobody_makes_an_object_the_operators_afterwards(site: Site, world: Json) -> None:
    place = ("-n", site.namespace(OPEN), "--dry-run=server")

    def change(kind: str, name: str, patch: Json, user: str | None = User.AUTHOR) -> str:
        return site.ask("patch", kind, name, "--type=merge", "-p", json.dumps(patch), *place, user=user).stderr

    adopted = {"metadata": {"ownerReferences": world["ownerReferences"]}}
    for kind in ("configmap", "raycluster"):
        assert "may only be written by the operator" in change(kind, "theirs", adopted), kind
    said = change("raycluster", "ours", {"metadata": {"annotations": {"rljob.dev/intent": "another"}}})
    assert "may only be written by the operator" in said
    # What KubeRay, Kueue and the garbage collector do.
    assert change("raycluster", "ours", {"spec": {"suspend": True}}) == ""
    assert change("raycluster", "ours", {"metadata": {"annotations": {"example.com/a": "b"}}}) == ""
    unblocked = [{**world["ownerReferences"][0], "blockOwnerDeletion": False}]
    assert change("raycluster", "ours", {"metadata": {"ownerReferences": unblocked}}) == ""
    assert change("raycluster", "ours", {"metadata": {"ownerReferences": []}}) == ""


def test_the_cluster_of_a_recipe_is_still_judged(site: Site) -> None:
    assert site.refused(OPEN, OPERATOR, {"host": cluster(site, {"network": {"mode": "Host"}})}) != {}
