"""The chart's policies on a real API server: attacks are rejected with field and fix, valid requests pass."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from builders import Json, small_spec, typed
from contract.attacks import ATTACKS, BLESSED, LIMITED, OPEN, User, from_secret, sidecar
from contract.conftest import KUBECONFIG
from contract.policy_site import (
    EDITOR,
    OPERATOR,
    Site,
    cluster,
    controlled,
    identity,
    named,
    policy_site,
    refuses,
    rljob,
    rlrecipe,
)
from corpus.bad import group, merged, template
from corpus.good import GOOD

from rljob.api.v1alpha1 import API_VERSION
from rljob.render.initializer import build_initializer
from rljob.render.raycluster import build_raycluster
from rljob.render.shared_services import build_shared_services

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not KUBECONFIG, reason="RLJOB_TEST_KUBECONFIG names no cluster"),
]


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with policy_site("rbac.aggregateRayClusters=true") as made:
        yield made


def test_every_attack_is_refused_with_field_and_fix(site: Site) -> None:
    assert len(ATTACKS) >= 12
    answers: dict[str, str] = {}
    for namespace in (OPEN, LIMITED, BLESSED):
        for user in User:
            chosen = {key: a for key, a in ATTACKS.items() if (a.namespace, a.user) == (namespace, user)}
            manifests = {key: rlrecipe(a.recipe) if a.recipe else rljob(a.spec) for key, a in chosen.items()}
            answers |= site.refused(namespace, user, manifests) if manifests else {}
    for key, attack in ATTACKS.items():
        assert refuses("", answers.get(key, "passed")), (key, answers.get(key))
        for part in attack.says:
            assert part in answers[key], key


def test_an_admin_may_do_the_same_where_the_namespace_has_no_limits(site: Site) -> None:
    """All but mount the system of a node, which a limit has to name."""
    manifests = {key: rlrecipe(a.recipe) if a.recipe else rljob(a.spec) for key, a in ATTACKS.items()}
    answers = site.refused(OPEN, None, manifests)
    assert set(answers) == {
        *("a folder of the node", "a folder above an allowed one", "a folder of the node by way of a recipe")
    }
    for said in answers.values():
        assert "is of the system of a node, which only the limit of namespace" in said


def test_what_the_operator_makes_mounts_no_system_of_a_node(site: Site) -> None:
    """Its stolen token may claim to be of any job, in a namespace without limits too."""

    def folder(path: str) -> Json:
        return {"volumes": [{"name": "n", "hostPath": {"path": path}}]}

    def mounts(path: str) -> Json:
        made = merged(cluster(site, {}), {"metadata": {"namespace": site.namespace(OPEN)}})
        # The API of jobs refuses some of these spellings.
        made["spec"]["headGroupSpec"]["template"]["spec"] |= folder(path)
        return made

    system = ("/", "/.", "/etc/kubernetes", "//root", "/mnt/./../var/lib/kubelet", "/lib64", "/var", "/opt/cni/bin")
    answers = site.refused(OPEN, OPERATOR, {path: mounts(path) for path in system})
    assert {path for path, said in answers.items() if "is of the system of a node" in said} == {*system}
    data = ("/mnt/varied/etc", "/data", "/opt/models", "/home/rl", "/libraries")
    assert site.refused(OPEN, OPERATOR, {path: mounts(path) for path in data}) == {}
    assert site.refused(OPEN, User.AUTHOR, {"data": rljob(small_spec(template(folder("/mnt/varied/etc"))))}) == {}


def test_a_good_author_passes(site: Site) -> None:
    good = {key: rljob(small_spec(change)) for key, change in GOOD.items()}
    good["an account of one's own"] = rljob(small_spec({"runtime": {"serviceAccountName": "trainer"}}))
    good["a recipe"] = rlrecipe({"template": {"secretRefs": [{"name": "hub"}]}})
    assert site.refused(OPEN, User.AUTHOR, good) == {}


def test_whoever_may_edit_workloads_of_a_namespace_notices_nothing(site: Site) -> None:
    jobs = {key: rljob(small_spec(change)) for key, change in GOOD.items()}
    jobs["any account and Secret"] = rljob(
        small_spec({"runtime": {"serviceAccountName": "any"}, "secretRefs": [{"name": f"s{n}"} for n in range(16)]})
    )
    assert site.refused(OPEN, EDITOR, jobs) == {}


def largest_job() -> Json:
    """Return a change of a spec to one that fills the bounds of its fields."""

    def variables(count: int) -> Json:
        own = [from_secret("hub")["valueFrom"] for _ in range(12)]
        return {"env": [{"name": f"V{n}", "valueFrom": v} for n, v in enumerate(own)]
                + [{"name": f"W{n}", "value": "x" * 120} for n in range(count - len(own))]}  # fmt: skip

    image = "registry.example/rljob/x:1"
    pod = {
        **variables(128),
        "volumes": [{"name": f"v{n}", "hostPath": {"path": f"/srv/data/{n}"}} for n in range(32)],
        "sidecars": [{"name": f"s{n}", "image": image, **variables(24)} for n in range(4)],
    }
    return merged(template(pod), {
        "head": {"template": pod},
        "services": [{"name": f"h{n}", "image": image, "port": 9000 + n} for n in range(8)],
        "initializers": [{"name": f"i{n}", "command": ["x"], "image": image} for n in range(8)],
    })  # fmt: skip


def test_the_largest_job_is_not_too_much_to_look_at(site: Site) -> None:
    largest = largest_job()
    jobs = {"largest": rljob(small_spec(largest))}
    answer = site.refused(LIMITED, User.AUTHOR, jobs)
    # More references than the policy checks individually.
    assert "more than 8 require the permission to get all Secrets" in answer["largest"]
    assert site.refused(LIMITED, None, jobs) == {}
    made = cluster(site, largest)
    assert len(json.dumps(made)) > 75_000
    assert site.refused(LIMITED, OPERATOR, {"largest": made}) == {}


def test_a_recipe_for_all_takes_rights_in_all_namespaces(site: Site) -> None:
    recipe = {"apiVersion": API_VERSION, "kind": "ClusterRLRecipe", "metadata": {"name": "x"}, "spec": {"template": {}}}
    words = ("create", "--dry-run=server", "--validate=false", "-f", "-")
    said = site.ask(*words, user=User.AUTHOR, body=recipe).stderr
    assert "author may not create pods in all namespaces" in said
    for entitled in (OPERATOR, None):
        assert site.ask(*words, user=entitled, body=recipe).stderr == ""


def test_what_stays_within_the_limits_passes(site: Site) -> None:
    changes: dict[str, Json] = {
        "as many cards as there are": merged(
            {"accelerator": {"class": "atlas-a3"}}, group({"nodes": 2, "devicesPerNode": 16})
        ),
        "a folder below an allowed one": template({"volumes": [{"name": "m", "hostPath": {"path": "/srv/models/q"}}]}),
        "an allowed image with tag and digest": {"runtime": {"image": f"registry.example/rljob:a@sha256:{'0' * 64}"}},
        "an allowed image by its tag": {
            "initializers": [{"name": "get", "command": ["x"], "image": "docker.io/library/python:3.12"}]
        },
        "a container that drops rights": sidecar(
            ports=[{"containerPort": 80}], securityContext={"privileged": False, "capabilities": {"drop": ["ALL"]}}
        ),
    }
    assert site.refused(LIMITED, User.AUTHOR, {k: rljob(small_spec(c)) for k, c in changes.items()}) == {}
    assert site.refused(BLESSED, User.AUTHOR, {
        "an allowed recipe": rljob(small_spec({"recipeRef": {"name": "other"}})),
        "a recipe on an allowed one": rlrecipe({"recipeRef": {"name": "blessed"}, "template": {}}),
        "a job on such a recipe": rljob(small_spec({"recipeRef": {"kind": "RLRecipe", "name": "mine"}})),
    }) == {}  # fmt: skip


def test_an_evaluation_of_the_operator_names_no_recipe(site: Site) -> None:
    """Its job was judged, and what the recipe says is part of it; a user may not do without a recipe."""
    made = {"an evaluation": rljob(small_spec({"trainer": {"mode": "Evaluate"}}))}
    assert site.refused(BLESSED, OPERATOR, made) == {}
    assert "allows only jobs based on ClusterRLRecipe" in site.refused(BLESSED, User.AUTHOR, made)["an evaluation"]


def test_what_recipes_bring_in_is_seen_in_what_the_operator_makes(site: Site) -> None:
    a3 = {"accelerator": {"class": "atlas-a3"}}
    changes: dict[str, tuple[Json, str]] = {
        "cards": (merged(a3, group({"nodes": 4, "devicesPerNode": 16})), "request 32 cards of class atlas-a3"),
        "class": (merged({"accelerator": {"class": "atlas-a2"}}, group({"devicesPerNode": 8})), "is atlas-a2"),
        "image": ({"runtime": {"image": "miner:1"}}, "image miner:1"),
        "network": ({"network": {"mode": "Host"}}, "hostNetwork"),
        "folder": (template({"volumes": [{"name": "x", "hostPath": {"path": "/etc"}}]}), "hostPath /etc"),
        "privileges": (sidecar(securityContext={"privileged": True}), "limits.rljob.dev/privileged"),
        "processes": ({"podSpecPatch": {"head": {"hostPID": True}}}, "limits.rljob.dev/privileged"),
        "devices by a patch": (
            {
                "podSpecPatch": {
                    "workers": {
                        "containers": [{"name": "ray-worker", "resources": {"limits": {"huawei.com/npu": "64"}}}]
                    }
                }
            },
            "request 66 cards",
        ),
    }
    answers = site.refused(LIMITED, OPERATOR, {key: cluster(site, change) for key, (change, _) in changes.items()})
    for key, (_, said) in changes.items():
        assert said in answers.get(key, "passed"), key
    # Folders of the NPU driver come from the accelerator table.
    within = cluster(site, merged(a3, group({"nodes": 2, "devicesPerNode": 16})))
    assert "rljob-driver-0" in json.dumps(within)
    assert site.refused(LIMITED, OPERATOR, {"within": within}) == {}


def test_an_initializer_that_a_recipe_brings_in_is_seen_too(site: Site) -> None:
    def job(image: str) -> Json:
        spec = typed(small_spec({"initializers": [{"name": "get", "command": ["x"], "image": image}]}))
        return build_initializer(identity(site), spec, spec.initializers[0])

    answers = site.refused(LIMITED, OPERATOR, {"bad": job("miner:1"), "good": job("registry.example/rljob/x:1")})
    assert list(answers) == ["bad"]
    assert "image miner:1" in answers["bad"]


def test_a_harmless_job_cannot_become_an_attack(site: Site) -> None:
    where = ("-n", site.namespace(OPEN))
    manifest = named(rljob(small_spec({"runtime": {"serviceAccountName": "trainer"}})), "harmless")
    site.do("create", *where, "-f", "-", user=User.AUTHOR, body=manifest)

    def change(user: str | None, spec: Json, *words: str) -> str:
        patch = ("patch", "rljob", "harmless", *where, "--type=merge", "--dry-run=server", *words, "-p")
        return site.ask(*patch, json.dumps(spec), user=user).stderr

    assert "may not use ServiceAccount cluster-backup" in change(
        User.AUTHOR, {"spec": {"runtime": {"serviceAccountName": "cluster-backup"}}}
    )
    assert "may not create pods" in change(User.BARE, {"spec": {"trainer": {"steps": 50}}})
    assert "may not create pods" in change(User.BARE, {"spec": {"runtime": {"serviceAccountName": None}}})
    for harmless in (
        {"metadata": {"labels": {"a": "b"}}},
        {"spec": {"suspend": True}},
        {"spec": {"stop": {"requested": True}}},
    ):
        assert change(User.BARE, harmless) == ""
    status = {"status": {"state": "Succeeded"}}
    assert "may only be written by the operator" in change(User.AUTHOR, status, "--subresource=status")
    for entitled in (OPERATOR, None):
        assert change(entitled, status, "--subresource=status") == ""


def test_an_edit_of_a_job_that_has_ended_is_warned_of(site: Site) -> None:
    where = ("rljob", "over", "-n", site.namespace(OPEN), "--type=merge")
    site.do("create", "-n", site.namespace(OPEN), "-f", "-", body=named(rljob(small_spec({"suspend": True})), "over"))
    edit = json.dumps({"spec": {"deadlines": {"startSeconds": 100}}})
    assert "Warning" not in site.ask("patch", *where, "-p", edit, "--dry-run=server").stderr
    ended = json.dumps({"status": {"state": "Failed"}})
    site.do("patch", *where, "--subresource=status", "-p", ended, user=OPERATOR)
    done = site.ask("patch", *where, "-p", edit)
    assert "the job has ended as Failed, so this change of its spec has no effect" in done.stderr
    kept = json.dumps({"spec": {"cleanup": {"jobAfterSeconds": 86400}}})
    assert "Warning" not in site.ask("patch", *where, "-p", kept).stderr
    label = json.dumps({"metadata": {"labels": {"a": "b"}}})
    assert "Warning" not in site.ask("patch", *where, "-p", label).stderr


def test_the_limits_hold_for_shared_services(site: Site) -> None:
    def deployment(image: str, **fields: object) -> Json:
        service = {"name": "judge", "image": image, "port": 8000, "placement": "Shared"}
        *_, made = build_shared_services(identity(site), typed(small_spec({"services": [service]})), 1)
        container = made["spec"]["template"]["spec"]["containers"][0]
        return merged(made, {"spec": {"template": {"spec": {"containers": [merged(container, fields)]}}}})

    image = "registry.example/rljob/x:1"
    made = {
        "good": deployment(image),
        "image": deployment("miner:1"),
        "devices": deployment(image, resources={"limits": {"huawei.com/Ascend910": "8"}}),
        "variable": deployment(image, env=[{"name": "ASCEND_VISIBLE_DEVICES", "value": "0"}]),
    }
    answers = site.refused(LIMITED, OPERATOR, made)
    assert set(answers) == {"image", "devices", "variable"}
    assert "allows only images of" in answers["image"]
    for key in ("devices", "variable"):
        assert "only the container ray-worker of a class has NPUs" in answers[key]


def test_nobody_forges_what_the_operator_would_adopt(site: Site) -> None:
    forged: dict[str, Json] = {
        "a snapshot of the spec": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": controlled(site), "data": {}},
        "one with another version of the owner": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": controlled(site)
            | {"ownerReferences": [{**controlled(site)["ownerReferences"][0], "apiVersion": "example.com/v1"}]},
        },
        "a token": {"apiVersion": "v1", "kind": "Secret", "metadata": controlled(site)},
        "a RayCluster": build_raycluster(identity(site, OPEN), typed(), 1, "digest"),
        "an evaluation": merged(rljob(small_spec({"trainer": {"mode": "Evaluate"}})), {"metadata": controlled(site)}),
        "a ConfigMap that is listed with those of a job": {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"labels": {"rljob.dev/job-uid": identity(site, OPEN).uid}},
        },
    }
    answers = site.refused(OPEN, User.AUTHOR, forged)
    for key in forged:
        said = answers.get(key, "passed")
        # The labels in the templates of a RayCluster are refused too, and the API server names one policy.
        assert "may only be written by the operator" in said or "only the operator may write them" in said, key
    own = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {}, "data": {"a": "b"}}
    assert site.refused(OPEN, User.AUTHOR, {"an own ConfigMap": own}) == {}
    opened = {"podSelector": {}, "policyTypes": ["Ingress"], "ingress": [{}]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": opened}
    manifests = {"forged": {**policy, "metadata": controlled(site)}, "own": {**policy, "metadata": {}}}
    # Users who may edit workloads may write NetworkPolicies too.
    answers = site.refused(OPEN, EDITOR, manifests)
    assert list(answers) == ["forged"]
    assert "may only be written by the operator" in answers["forged"]


def test_evidence_is_changed_by_the_operator_only(site: Site) -> None:
    where = ("-n", site.namespace(OPEN))
    site.do("create", *where, "-f", "-", body=named(rljob(small_spec({"suspend": True})), "told"))
    # Without its job the garbage collector deletes it at once.
    uid = site.do("get", "rljob", "told", *where, "-o", "jsonpath={.metadata.uid}")
    metadata = controlled(site)
    metadata["ownerReferences"][0] |= {"name": "told", "uid": uid}
    evidence = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"attempt-1": "{}"}}
    site.do("create", *where, "-f", "-", user=OPERATOR, body=named(evidence, "evidence"))

    def change(user: str, patch: Json) -> str:
        words = ("patch", "configmap", "evidence", *where, "--type=merge", "--dry-run=server", "-p")
        return site.ask(*words, json.dumps(patch), user=user).stderr

    assert "may only be written by the operator" in change(User.AUTHOR, {"data": {"attempt-1": "all went well"}})
    assert change(User.AUTHOR, {"metadata": {"labels": {"seen": "yes"}}}) == ""
    assert change(OPERATOR, {"data": {"attempt-2": "{}"}}) == ""
