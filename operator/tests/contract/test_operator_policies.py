"""What the operator's account may write, and who else may write what it trusts, on a real API server.

Requests are sent as the ServiceAccount of a release with the chart's real roles, so a rejection by a policy is one that
the roles alone would have allowed.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator

import pytest
from builders import Json, small_spec, typed
from contract.conftest import KUBECONFIG
from contract.operator_site import JOBS, MIGHTY, OperatorSite, config_map, existing_job, owner, sent
from contract.policy_site import named
from corpus.bad import merged
from corpus.good import GOOD

from rljob.api.v1alpha1 import API_VERSION
from rljob.render.code import build_code_copy
from rljob.render.evaluation import build_evaluation
from rljob.render.evidence import build_evidence
from rljob.render.export import build_export
from rljob.render.initializer import build_initializer, initializers
from rljob.render.labels import BUILT_IN, INTENT, JOB, JOB_UID, STOP_FINALIZER
from rljob.render.metadata import child_metadata
from rljob.render.names import JobIdentity, evaluation_name, export_name
from rljob.render.network_policy import build_network_policy
from rljob.render.podgroup import Gang, build_pod_group
from rljob.render.raycluster import build_raycluster, build_token_secret
from rljob.render.shared_services import build_shared_services

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]
ELSEWHERE = "kube-system"
POD_GROUPS = "podgroups.scheduling.volcano.sh"


@pytest.fixture(scope="module")
def site(installation: OperatorSite) -> OperatorSite:
    return installation


@pytest.fixture(scope="module")
def job(site: OperatorSite) -> JobIdentity:
    """Return a job that exists, so that the garbage collector keeps its children."""
    return existing_job(site, "sums")


def initializer_job(job: JobIdentity) -> Json:
    spec = typed(small_spec({"initializers": [{"name": "get", "command": ["x"]}]}))
    return build_initializer(job, spec, spec.initializers[0])


def network_policy(job: JobIdentity) -> Json:
    spec = typed(small_spec({"runtime": {"rayVersion": "2.48.0", "unauthenticatedRay": True}}))
    made = build_network_policy(build_raycluster(job, spec, 1, "digest"))
    assert made is not None
    return made


def token(job: JobIdentity, **fields: object) -> Json:
    return {**build_token_secret(job, 1), "data": {"auth_token": "eA=="}, **fields}


def pod_spec(manifest: Json, change: Json) -> Json:
    """Return a Job with a change of its pods."""
    return merged(manifest, {"spec": {"template": {"spec": change}}})


def on_head(change: Json) -> Json:
    return {"spec": {"headGroupSpec": {"template": {"spec": change}}}}


def beside_the_node(batch: Json, cluster: Json) -> dict[str, tuple[Json, str]]:
    """Return a Job and a RayCluster that claim to be of a job, and use what no job may."""
    shared, node = on_head({"hostIPC": True}), "the processes of a node"
    of_the_system = merged(batch, {"metadata": {"namespace": ELSEWHERE}})
    return {
        "a Job among the node's processes": (pod_spec(batch, {"hostPID": True}), node),
        "a Job on a node of its choice": (pod_spec(batch, {"nodeName": "control-plane"}), node),
        "a RayCluster among the node's processes": (merged(cluster, shared), node),
        "a Job of the system": (of_the_system, "in a namespace of Kubernetes or KubeRay"),
    }


def forbidden_creations(site: OperatorSite, job: JobIdentity) -> dict[str, tuple[Json, str]]:
    """Return what the operator's roles allow and its policies do not, and a part of the answer."""
    no_owner = {"ownerReferences": None}
    batch, secret = initializer_job(job), token(job)
    projected = {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}
    unasked = "volumes that no job may ask for"
    hidden = {"name": "s", "projected": {"sources": [{"secret": {"name": "s"}}]}}
    cluster = build_raycluster(job, typed(), 1, "digest")
    policy = network_policy(job)
    its_account = {"kubernetes.io/service-account.name": "default"}
    deployment = {**owner("sums", job.uid), "apiVersion": "apps/v1", "kind": "Deployment"}
    recipe: Json = {"apiVersion": API_VERSION, "kind": "ClusterRLRecipe", "spec": {"template": {}}}
    lease: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": site.release}}
    none, not_its = "its controller is no RLJob", "is not that of a child of its RLJob"
    return {
        "aws-auth": (named(config_map({"namespace": ELSEWHERE}, data={"mapUsers": "x"}), "aws-auth"), none),
        "aws-auth that claims to be a job's": (
            named(config_map({"namespace": ELSEWHERE, "ownerReferences": [owner("aws", job.uid)]}), "aws-auth"),
            not_its,
        ),
        "a child without the label of its job": (merged(secret, {"metadata": {"labels": {JOB_UID: None}}}), not_its),
        "a controller of another kind": (merged(secret, {"metadata": {"ownerReferences": [deployment]}}), none),
        "a kind of the same name in another group": (
            merged(secret, {"metadata": {"ownerReferences": [owner("sums", job.uid, apiVersion="example.com/v1")]}}),
            none,
        ),
        "an owner that is not the controller": (
            merged(secret, {"metadata": {"ownerReferences": [owner("sums", job.uid, controller=False)]}}),
            none,
        ),
        "a ConfigMap that a sidecar loads": (
            merged(config_map(child_metadata(job, f"{job.prefix}-x", "x")), {"metadata": {"labels": {"grafana": "1"}}}),
            "labels and annotations of rljob.dev",
        ),
        "a Job of nobody": (merged(batch, {"metadata": no_owner}), none),
        "a Job of nobody elsewhere": (merged(batch, {"metadata": no_owner | {"namespace": ELSEWHERE}}), none),
        "a Job with a token": (
            pod_spec(batch, {"automountServiceAccountToken": True, "serviceAccountName": "admin"}),
            "would get a token of a ServiceAccount",
        ),
        "a Job that says nothing about a token": (
            pod_spec(batch, {"automountServiceAccountToken": None}),
            "would get a token of a ServiceAccount",
        ),
        "a Job with a projected token": (pod_spec(batch, {"volumes": [projected]}), unasked),
        "a Job with a Secret": (pod_spec(batch, {"volumes": [{"name": "s", "secret": {"secretName": "s"}}]}), unasked),
        "a RayCluster with a projected Secret": (merged(cluster, on_head({"volumes": [hidden]})), unasked),
        **beside_the_node(batch, cluster),
        "a service account's token": (
            merged(secret, {"type": "kubernetes.io/service-account-token", "metadata": {"annotations": its_account}}),
            "of type Opaque",
        ),
        "a Secret that names an account": (merged(secret, {"metadata": {"annotations": its_account}}), "of rljob.dev"),
        "a Secret that another controller loads": (
            merged(secret, {"metadata": {"labels": {"argocd.argoproj.io/secret-type": "cluster"}}}),
            "labels and annotations of rljob.dev",
        ),
        "a Secret with other keys": (merged(secret, {"data": {"kubeconfig": "eA=="}}), "with the key auth_token"),
        "a Secret of nobody": (merged(secret, {"metadata": no_owner}), none),
        "a RayCluster of nobody": (merged(cluster, {"metadata": no_owner}), none),
        "a RayCluster whose head gets a token": (
            merged(cluster, on_head({"automountServiceAccountToken": None})),
            "would get a token of a ServiceAccount",
        ),
        "a NetworkPolicy of nobody": (merged(policy, {"metadata": no_owner}), none),
        "a NetworkPolicy for all pods": (
            merged(policy, {"spec": {"podSelector": {"matchLabels": None}}}),
            "for the pods of their own RLJob",
        ),
        "a recipe that is not of its release": (named(recipe, "x"), "only write recipes of its release"),
        "a recipe of another release": (
            merged(named(recipe, "x"), {"metadata": {"labels": {BUILT_IN: "other.rljob-operator"}}}),
            "only write recipes of its release",
        ),
        "the Lease of another component": (named(lease, "another"), "only write its own Lease"),
        "an event about something else": (event(site, {"regarding": {"kind": "Pod"}}), "its own events about RLJobs"),
        "an event of somebody else": (event(site, {"reportingController": "kubelet"}), "its own events about RLJobs"),
    }


def event(site: OperatorSite, change: Json) -> Json:
    regarding = {"apiVersion": API_VERSION, "kind": "RLJob", "name": "sums", "namespace": site.namespace(JOBS)}
    return merged(
        {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": "sums.1", "namespace": site.namespace(JOBS)},
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "type": "Normal",
            "reason": "Started",
            "action": "Reconcile",
            "note": "x",
            "reportingController": "rljob.dev/rljob-operator",
            "reportingInstance": "x",
            "regarding": regarding,
        },
        change,
    )


def test_the_operator_creates_nothing_but_what_a_job_needs(site: OperatorSite, job: JobIdentity) -> None:
    attacks = forbidden_creations(site, job)
    answers = sent(site, site.operator, {key: manifest for key, (manifest, _) in attacks.items()})
    for key, (_, says) in attacks.items():
        assert "denied request" in answers.get(key, "passed"), (key, answers.get(key))
        assert says in answers[key], key
    # The policies concern the operator's account only.
    valid = {key: manifest for key, (manifest, _) in attacks.items() if "account's token" not in key}
    assert sent(site, None, valid) == {}


def test_the_operator_creates_every_object_of_every_good_job(site: OperatorSite, job: JobIdentity) -> None:
    source = config_map({}, data={"reward.py": "x = 1"})
    made = {
        "token": token(job),
        "network policy": network_policy(job),
        "code": build_code_copy(job, source),
        "evidence": build_evidence(job, None, 1, {"a": "b"}),
        "event": event(site, {}),
    }
    for key, change in GOOD.items():
        spec = typed(small_spec(change))
        made[f"cluster of {key}"] = build_raycluster(job, spec, 1, "digest")
        for each in initializers(spec):
            made[f"initializer {each.name} of {key}"] = build_initializer(job, spec, each)
        for found in build_shared_services(job, spec, 1):
            made[f"{found['kind']} {found['metadata']['name']} of {key}"] = found
        if spec.export is not None:
            made[f"export of {key}"] = build_export(job, spec, spec.export, export_name(job, 2, key), 2, 1 << 30)
    body = {"apiVersion": "v1", "kind": "List", "items": list(made.values())}
    done = site.ask("create", "--dry-run=server", "--validate=false", "-f", "-", user=site.operator, body=body)
    # One job has a container that only the API server can judge; it does so after the policies.
    assert "denied request" not in done.stderr
    assert len(done.stdout.splitlines()) >= len(made) - 1


def test_the_operator_replaces_no_object_of_others(site: OperatorSite, job: JobIdentity) -> None:
    where = ("-n", site.release)
    site.do("create", *where, "-f", "-", body=named(config_map({}, data={"Corefile": "."}), "coredns"))
    found = json.loads(site.do("get", "configmap", "coredns", *where, "-o", "json"))
    taken = merged(found, {"metadata": {"ownerReferences": [owner("sums", job.uid)]}})
    system = json.loads(site.do("get", "configmap", "kube-root-ca.crt", "-n", ELSEWHERE, "-o", "json"))
    for manifest, says in (
        (merged(found, {"data": {"Corefile": "evil"}}), "its controller is no RLJob"),
        (merged(system, {"data": {"ca.crt": "evil"}}), "its controller is no RLJob"),
        (taken, "had the same RLJob as their controller before"),
    ):
        metadata = manifest["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/configmaps/{metadata['name']}"
        said = site.raw("replace", path, manifest)
        assert "denied request" in said
        assert says in said


def test_the_operator_updates_its_own_config_maps(site: OperatorSite, job: JobIdentity) -> None:
    ports = named(config_map({"namespace": site.release}, data={"20000": "{}"}), f"{site.id}-ports")
    for manifest in (build_evidence(job, None, 1, {"a": "b"}), ports):
        made = json.loads(site.do("create", "-f", "-", "-o", "json", user=site.operator, body=manifest))
        metadata = made["metadata"]
        path = f"/api/v1/namespaces/{metadata['namespace']}/configmaps/{metadata['name']}"
        assert site.raw("replace", path, merged(made, {"data": {"more": "{}"}})) == ""
        # Labels that users have added since do not matter.
        site.do("label", "configmap", "-n", metadata["namespace"], metadata["name"], "seen=yes")
    elsewhere = merged(ports, {"metadata": {"namespace": site.namespace(JOBS)}})
    assert "its controller is no RLJob" in sent(site, site.operator, {"": elsewhere})[""]


def test_the_operator_deletes_what_it_froze_of_jobs_only(site: OperatorSite, job: JobIdentity) -> None:
    frozen = config_map(child_metadata(job, f"{job.prefix}-7", "cluster/7"), data={"spec": "{}"})
    secret = merged(token(job), {"metadata": {"name": f"{job.prefix}-7"}})
    unlabelled = {"metadata": {"labels": {JOB: None, JOB_UID: None}}}
    says: dict[str, Json] = {
        "its controller is no RLJob": {"metadata": {"ownerReferences": None, **unlabelled["metadata"]}},
        "name or label rljob.dev/job-uid is not that of a child": unlabelled,
    }
    for kind, own in (("configmaps", frozen), ("secrets", secret)):
        folder = f"/api/v1/namespaces/{job.namespace}/{kind}"
        site.do("create", "-f", "-", body=own)
        for number, (answer, change) in enumerate(says.items()):
            site.do("create", "-f", "-", body=named(merged(own, change), f"somebodys-{number}"))
            assert answer in site.raw("delete", f"{folder}/somebodys-{number}"), (kind, answer)
        assert site.raw("delete", f"{folder}/{own['metadata']['name']}") == ""
    batch = initializer_job(job)
    site.do("create", "-f", "-", body=batch)
    # Neither its role nor a policy lets it delete a Job.
    name = batch["metadata"]["name"]
    assert "cannot delete resource" in site.raw("delete", f"/apis/batch/v1/namespaces/{job.namespace}/jobs/{name}")
    site.do("delete", "job", "-n", job.namespace, name)
    hub = named(config_map({"namespace": site.namespace(JOBS)}, data={}), "hub")
    site.do("create", "-f", "-", body=merged(hub, {"metadata": {"labels": None}}))
    path = f"/api/v1/namespaces/{site.namespace(JOBS)}/configmaps/hub"
    assert "its controller is no RLJob" in site.raw("delete", path)


def test_the_operator_deletes_the_clusters_of_jobs_only(site: OperatorSite, job: JobIdentity) -> None:
    own = build_raycluster(job, typed(), 1, "digest")
    foreign = named(merged(own, {"metadata": {"ownerReferences": None}}), "somebodys")
    for manifest in (own, foreign):
        site.do("create", "-f", "-", body=manifest)
    folder = f"/apis/ray.io/v1/namespaces/{job.namespace}/rayclusters"
    assert site.raw("delete", f"{folder}/{own['metadata']['name']}") == ""
    assert "its controller is no RLJob" in site.raw("delete", f"{folder}/somebodys")


def test_the_operator_changes_no_rljob_but_its_finalizer_and_status(site: OperatorSite, job: JobIdentity) -> None:
    def patch(change: Json, *words: str) -> str:
        given = ("-n", job.namespace, "rljob", "sums", "--type=merge", *words, "-p", json.dumps(change))
        return site.rejected("patch", *given)

    says = "may only change the finalizer rljob.dev/stop and the status"
    for refused in (
        {"spec": {"suspend": False}},
        {"spec": {"runtime": {"serviceAccountName": "admin"}}},
        {"metadata": {"labels": {"a": "b"}}},
        {"metadata": {"annotations": {"rljob.dev/force-delete": "true"}}},
        {"metadata": {"finalizers": ["example.com/keep"]}},
        {"metadata": {"finalizers": [STOP_FINALIZER]}, "spec": {"suspend": False}},
    ):
        assert says in patch(refused), refused
    assert patch({"metadata": {"finalizers": [STOP_FINALIZER]}}) == ""
    keep = ("patch", "rljob", "sums", "-n", job.namespace, "--type=merge", "-p")
    site.do(*keep, json.dumps({"metadata": {"finalizers": ["example.com/keep"]}}))
    try:
        assert says in patch({"metadata": {"finalizers": []}})
        assert patch({"metadata": {"finalizers": [STOP_FINALIZER, "example.com/keep"]}}) == ""
    finally:
        site.do(*keep, json.dumps({"metadata": {"finalizers": None}}))


def test_the_operator_changes_recipes_of_its_release_only(site: OperatorSite) -> None:
    mark = f"{site.release}.{site.id}"
    recipe: Json = {"apiVersion": API_VERSION, "kind": "ClusterRLRecipe", "spec": {"template": {}}}
    own = merged(named(recipe, f"{site.id}-own"), {"metadata": {"labels": {BUILT_IN: mark}}})
    users = named(recipe, f"{site.id}-users")
    for each in (users, own):
        site.do("create", "-f", "-", body=each)
    folder = "/apis/rljob.dev/v1alpha1/clusterrlrecipes"
    try:
        says = "only write recipes of its release"
        assert says in site.raw("delete", f"{folder}/{site.id}-users")
        steal = json.dumps({"metadata": {"labels": {BUILT_IN: mark}}})
        assert says in site.rejected("patch", "clusterrlrecipe", f"{site.id}-users", "--type=merge", "-p", steal)
        change = json.dumps({"spec": {"template": {"trainer": {"steps": 3}}}})
        assert site.rejected("patch", "clusterrlrecipe", f"{site.id}-own", "--type=merge", "-p", change) == ""
        assert sent(site, site.operator, {"": named(own, f"{site.id}-new")}) == {}
        assert site.raw("delete", f"{folder}/{site.id}-own") == ""
    finally:
        site.do("delete", "clusterrlrecipe", f"{site.id}-own", f"{site.id}-users")


def test_the_operator_creates_evaluations_only_and_deletes_finished_jobs_only(
    site: OperatorSite, job: JobIdentity
) -> None:
    asked = typed(small_spec(GOOD["evaluations"]))
    assert asked.evaluation is not None
    own = build_evaluation(job, asked, asked.evaluation, evaluation_name(job, 4), 4, None)
    long = JobIdentity(job.namespace, "a-name-of-forty-characters-is-the-longest", job.uid)
    of_long = build_evaluation(long, asked, asked.evaluation, evaluation_name(long, 2**31 - 1), 4, None)
    assert sent(site, site.operator, {"own": own, "of a long name": of_long}) == {}
    says = "may only create RLJobs that evaluate the checkpoints of an RLJob"
    attacks = {
        "that trains": merged(own, {"spec": {"trainer": {"mode": "Sync"}}}),
        "that makes others": merged(own, {"spec": {"evaluation": {}}}),
        "of nobody": merged(own, {"metadata": {"ownerReferences": None}}),
        "with another name": named(own, "sums-2"),
        "without the label": merged(own, {"metadata": {"labels": {JOB_UID: None}}}),
    }
    refused = sent(site, site.operator, attacks)
    assert {key: says in said for key, said in refused.items()} == dict.fromkeys(attacks, True)
    # The policies concern the operator's account only.
    site.do("create", "-f", "-", body=attacks["with another name"])
    path = f"/apis/{API_VERSION}/namespaces/{job.namespace}/rljobs/sums-2"
    assert "may only delete RLJobs that have finished" in site.raw("delete", path)
    ended = {"type": "Finished", "status": "True", "reason": "Stopped", "lastTransitionTime": "2026-01-01T12:00:00Z"}
    status = json.dumps({"status": {"conditions": [ended]}})
    where = ("-n", job.namespace, "rljob", "sums-2", "--subresource=status", "--type=merge")
    site.do("patch", *where, "-p", status)
    assert site.raw("delete", path) == ""


def test_the_operator_writes_its_own_lease_only(site: OperatorSite) -> None:
    lease: Json = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"namespace": site.release}}
    made = json.loads(site.do("create", "-f", "-", "-o", "json", user=site.operator, body=named(lease, site.id)))
    path = f"/apis/coordination.k8s.io/v1/namespaces/{site.release}/leases/{site.id}"
    assert site.raw("replace", path, merged(made, {"spec": {"holderIdentity": "x"}})) == ""


@contextlib.contextmanager
def pod_groups(site: OperatorSite) -> Iterator[None]:
    """Serve a kind with the name of Volcano's, of which the policies read metadata only."""
    names = {"plural": "podgroups", "singular": "podgroup", "kind": "PodGroup", "listKind": "PodGroupList"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": schema}
    crd = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": POD_GROUPS},
        "spec": {"group": "scheduling.volcano.sh", "scope": "Namespaced", "names": names, "versions": [version]},
    }
    site.do("create", "-f", "-", body=crd)
    try:
        site.do("wait", "--for=condition=Established", "--timeout=60s", f"crd/{POD_GROUPS}")
        yield
    finally:
        site.do("delete", "crd", POD_GROUPS)


def test_the_operator_makes_and_deletes_pod_groups_of_jobs_only(site: OperatorSite, job: JobIdentity) -> None:
    spec = typed(small_spec({"scheduling": {"gang": "Volcano"}}))
    cluster = build_raycluster(job, spec, 1, "digest", gang=Gang.VOLCANO)
    own = build_pod_group(job, spec, 1, cluster, frozenset())
    foreign = named(merged(own, {"metadata": {"ownerReferences": None}}), "somebodys")
    folder = f"/apis/scheduling.volcano.sh/v1beta1/namespaces/{job.namespace}/podgroups"
    with pod_groups(site):
        deadline = time.monotonic() + 60
        while "no matches" in (said := site.ask("create", "-f", "-", body=foreign).stderr):
            assert time.monotonic() < deadline, said
        assert said == ""
        assert "its controller is no RLJob" in sent(site, site.operator, {"": foreign})[""]
        site.do("create", "-f", "-", user=site.operator, body=own)
        assert site.raw("delete", f"{folder}/{own['metadata']['name']}") == ""
        assert "its controller is no RLJob" in site.raw("delete", f"{folder}/somebodys")
        adopt = json.dumps({"metadata": {"ownerReferences": [owner("sums", job.uid)]}})
        words = ("-n", job.namespace, "podgroup", "--type=merge", "-p", adopt)
        assert "may only be written by the operator" in site.rejected("patch", *words, "somebodys", user=MIGHTY)
        states = json.dumps({"status": {"phase": "Running"}, "metadata": {"annotations": {"volcano.sh/x": "y"}}})
        assert site.rejected("patch", *words[:-1], states, own["metadata"]["name"], user=MIGHTY) == ""


def adoptable(job: JobIdentity) -> dict[str, Json]:
    """Return one object of each kind that the operator would adopt, without its owner."""
    made = {
        "configmap": config_map(child_metadata(job, f"{job.prefix}-forged", "spec/1"), data={"spec": "{}"}),
        "secret": token(job),
        "raycluster": build_raycluster(job, typed(), 2, "digest"),
        "job": initializer_job(job),
    }
    # What the operator lists by label has none of its labels either.
    bare: Json = {"metadata": {"ownerReferences": None, "labels": {JOB: None, JOB_UID: None}}}
    found = {kind: merged(manifest, bare) for kind, manifest in made.items()}
    cluster = found["raycluster"]["spec"]
    for each in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"], found["job"]["spec"]):
        # Nor has a template, from which pods would count as those of a job.
        labels = each["template"]["metadata"]["labels"]
        each["template"]["metadata"]["labels"] = {key: labels[key] for key in labels if key not in (JOB, JOB_UID)}
    return found


def test_nobody_turns_an_own_object_into_one_that_the_operator_trusts(site: OperatorSite, job: JobIdentity) -> None:
    reference = owner("sums", job.uid)
    for kind, manifest in adoptable(job).items():
        name = f"forged-{kind}"
        site.do("create", "-f", "-", user=MIGHTY, body=named(manifest, name))

        def patch(change: Json, *words: str, kind: str = kind, name: str = name) -> str:
            given = ("-n", job.namespace, kind, name, "--type=merge", *words, "-p", json.dumps(change))
            return site.rejected("patch", *given, user=MIGHTY)

        add = {"metadata": {"ownerReferences": [reference]}}
        assert "may only be written by the operator" in patch(add), kind
        if kind == "job":
            # Of a built-in kind, the status can be written together with the metadata.
            assert "may only be written by the operator" in patch(add, "--subresource=status")
        assert patch({"metadata": {"labels": {"a": "b"}, "annotations": {"a": "b"}}}) == "", kind
        assert patch({"metadata": {"ownerReferences": [{**reference, "controller": False}]}}) == "", kind
        # A reference that is there already becomes the controller.
        site.do(
            *("patch", kind, name, "-n", job.namespace, "--type=merge", "-p"),
            json.dumps({"metadata": {"ownerReferences": [{**reference, "controller": False}]}}),
        )
        assert "may only be written by the operator" in patch(add), kind


def test_what_the_operator_reads_back_is_protected_and_the_rest_is_not(site: OperatorSite, job: JobIdentity) -> None:
    made = {
        "configmap": config_map(child_metadata(job, f"{job.prefix}-told", "spec/1"), data={"spec": "{}"}),
        "secret": merged(token(job), {"metadata": {"name": f"{job.prefix}-9"}, "immutable": None}),
        "raycluster": build_raycluster(job, typed(), 3, "digest"),
        "job": initializer_job(job),
    }
    says = "may only be written by the operator"
    for kind, manifest in made.items():
        site.do("create", "-f", "-", user=site.operator, body=manifest)

        def patch(change: Json, *words: str, kind: str = kind, name: str = manifest["metadata"]["name"]) -> str:
            given = ("-n", job.namespace, kind, name, "--type=merge", *words, "-p", json.dumps(change))
            return site.rejected("patch", *given, user=MIGHTY)

        for mark in (INTENT, "rljob.dev/spec-hash"):
            for value in ("x", None) if mark == INTENT else ("x",):
                assert says in patch({"metadata": {"annotations": {mark: value}}}), (kind, mark)
        assert says in patch({"metadata": {"labels": {JOB_UID: None}}}), kind
        assert says in patch({"metadata": {"ownerReferences": [owner("other", "0" * 36)]}}), kind
        if kind in ("configmap", "secret"):
            assert says in patch({"data": {"more": "eA=="}}), kind
            assert says in patch({"data": {"more": "eA=="}, "metadata": {"ownerReferences": None}}), kind
        # What the garbage collector, Kueue, KubeRay and the Job controller write.
        assert patch({"metadata": {"ownerReferences": None}}) == "", kind
        unblocked = owner("sums", job.uid, blockOwnerDeletion=False)
        assert patch({"metadata": {"ownerReferences": [unblocked], "labels": {"a": "b"}}}) == "", kind
        if kind in ("raycluster", "job"):
            assert patch({"spec": {"suspend": True}}) == "", kind
            assert patch({"metadata": {"annotations": {"kueue.x-k8s.io/x": "y"}}}) == "", kind
    assert patch({"status": {"conditions": []}}, "--subresource=status") == ""
