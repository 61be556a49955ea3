"""Services with placement Shared: their objects, their names, and how the Ray pods find them."""

from __future__ import annotations

from typing import Any

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed

from rljob.launchers import LAUNCHER
from rljob.render import configmap, names
from rljob.render.metadata import digest
from rljob.render.names import JobIdentity
from rljob.render.network_policy import build_network_policy
from rljob.render.pods import service_env
from rljob.render.raycluster import build_raycluster, sidecar_names
from rljob.render.shared_services import build_shared_services

SHARED = {"name": "judge", "image": "registry.example/judge:1", "port": 8000, "placement": "Shared"}
NAME = "sums-0a1b2-svc-1-judge"
CLAIM = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
FOLDER = {"name": "models", "hostPath": {"path": "/models"}}
SCRATCH = {"name": "scratch", "emptyDir": {}}


def spec(*services: Json, **fields: object) -> Json:
    return small_spec({"services": list(services or (SHARED,)), **fields})


def made(document: Json) -> dict[str, Any]:
    return {each["kind"]: each for each in build_shared_services(IDENTITY, typed(document), 1)}


def pod(document: Json) -> Json:
    template: Json = made(document)["Deployment"]["spec"]["template"]
    return template


def test_a_shared_service_is_a_policy_a_service_and_a_deployment_of_the_job() -> None:
    found = build_shared_services(IDENTITY, typed(spec()), 1)
    assert [each["kind"] for each in found] == ["NetworkPolicy", "Service", "Deployment"]
    for each in found:
        (owner,) = each["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("RLJob", IDENTITY.uid, True)
        assert each["metadata"]["name"] == NAME
        assert each["metadata"]["labels"] == {
            "rljob.dev/job": "sums",
            "rljob.dev/job-uid": IDENTITY.uid,
            "rljob.dev/service": NAME,
        }
        assert each["metadata"]["annotations"]["rljob.dev/intent"] == f"{IDENTITY.uid}/service/{NAME}"


def test_only_pods_of_the_job_reach_only_its_port() -> None:
    policy = made(spec())["NetworkPolicy"]["spec"]
    selected = {"rljob.dev/job-uid": IDENTITY.uid, "rljob.dev/service": NAME}
    assert policy == {
        "podSelector": {"matchLabels": selected},
        "policyTypes": ["Ingress"],
        "ingress": [
            {
                "from": [{"podSelector": {"matchLabels": {"rljob.dev/job-uid": IDENTITY.uid}}}],
                "ports": [{"protocol": "TCP", "port": 8000}],
            }
        ],
    }
    assert made(spec())["Service"]["spec"] == {
        "type": "ClusterIP",
        "selector": selected,
        "ports": [{"protocol": "TCP", "port": 8000, "targetPort": 8000}],
    }
    deployment = made(spec())["Deployment"]["spec"]
    assert deployment["selector"] == {"matchLabels": selected}
    assert selected.items() <= deployment["template"]["metadata"]["labels"].items()


def test_its_pods_are_in_no_gang_and_have_nothing_but_their_own_size() -> None:
    asked = spec(SHARED | {"cpu": "2", "memory": "4Gi", "replicas": 3}, scheduling={"queueName": "team"})
    assert made(asked)["Deployment"]["spec"]["replicas"] == 3
    template = pod(asked)
    assert set(template["metadata"]) == {"labels"}
    assert all(name.startswith("rljob.dev/") for name in template["metadata"]["labels"])
    (container,) = template["spec"]["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"cpu": "4", "memory": "4Gi"},
    }
    assert not {"schedulerName", "runtimeClassName", "hostNetwork", "nodeName", "initContainers"} & set(
        template["spec"]
    )
    assert template["spec"]["automountServiceAccountToken"] is False
    least = pod(spec())["spec"]["containers"][0]["resources"]
    assert least["requests"] == {"cpu": "100m", "memory": "256Mi"}


def test_its_pods_have_the_identity_and_place_of_the_head() -> None:
    head = {
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "team", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"x": 1}, "podAffinity": {"y": 1}},
        "securityContext": {"runAsUser": 1000},
    }
    runtime = {"serviceAccountName": "reader", "imagePullSecrets": ["registry"], "image": "x:1"}
    found = pod(spec(head={"template": head}, runtime=runtime))["spec"]
    assert found["nodeSelector"] == {"disk": "ssd"}
    assert found["tolerations"] == [{"key": "team", "operator": "Exists"}]
    assert found["affinity"] == {"nodeAffinity": {"x": 1}}
    assert found["securityContext"] == {"runAsUser": 1000}
    assert found["serviceAccountName"] == "reader"
    assert found["imagePullSecrets"] == [{"name": "registry"}]


@pytest.mark.parametrize(
    ("change", "restricted"),
    [
        ({}, True),
        ({"head": {"template": {"securityContext": {"runAsNonRoot": False}}}}, False),
        ({"accelerator": {"class": "atlas-a3"}}, False),
    ],
    ids=["on CPUs", "an image that runs as root", "on NPUs"],
)
def test_its_container_is_restricted_where_that_of_a_pod_is(change: Json, restricted: bool) -> None:
    (container,) = pod(merged(spec(), change))["spec"]["containers"]
    assert ("securityContext" in container) == restricted
    beside = merged(spec(SHARED | {"placement": "Pod"}), change)
    head = build_raycluster(IDENTITY, typed(beside), 1, "d")["spec"]["headGroupSpec"]["template"]["spec"]
    other = next(each for each in head["initContainers"] if each["name"] == "judge")
    assert container.get("securityContext") == other.get("securityContext")


def test_a_service_of_an_npu_job_prefers_nodes_without_npus() -> None:
    affinity = pod(spec(accelerator={"class": "atlas-a3"}))["spec"]["affinity"]["nodeAffinity"]
    assert affinity["preferredDuringSchedulingIgnoredDuringExecution"]


def test_it_mounts_the_volumes_of_the_head_except_folders_of_nodes() -> None:
    mounts = [{"name": "data", "mountPath": "/data"}, {"name": "models", "mountPath": "/models"}]
    template = {"volumes": [CLAIM, FOLDER, SCRATCH], "volumeMounts": mounts}
    code = {"type": "ConfigMap", "configMap": {"name": "mine"}, "mountPath": "/code"}
    found = pod(spec(code=code, **group({"template": template})))["spec"]
    assert [volume["name"] for volume in found["volumes"]] == ["data", "rljob-code"]
    (container,) = found["containers"]
    assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/data", "/code"]


def test_it_fetches_code_of_git_itself() -> None:
    git = {"url": "https://git.example/rewards", "revision": "a" * 40}
    found = pod(spec(code={"type": "Git", "git": git, "mountPath": "/code"}))["spec"]
    assert [each["name"] for each in found["initContainers"]] == ["fetch-code"]
    assert found["volumes"] == [{"name": "rljob-code", "emptyDir": {}}]


def test_ray_finds_each_service_where_it_runs() -> None:
    both = typed(spec(SHARED, {"name": "sandbox", "image": "x", "port": 9000}))
    cluster = build_raycluster(IDENTITY, both, 3, "d", spec_generation=1)["spec"]
    pods = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for template in (each["template"]["spec"] for each in pods):
        env = {entry["name"]: entry.get("value") for entry in template["containers"][0]["env"]}
        assert env["RLJOB_SERVICE_JUDGE_URL"] == f"http://{NAME}.team.svc:8000"
        assert env["RLJOB_SERVICE_SANDBOX_URL"] == "http://localhost:9000"
        assert {each["name"] for each in template["initContainers"]} & {"judge", "sandbox"} == {"sandbox"}
    assert sidecar_names(both) == {"exporter", "sandbox"}
    # A local run has no Services of Kubernetes.
    assert service_env(both)[0]["value"] == "http://localhost:8000"


def test_names_are_labels_and_differ() -> None:
    job = JobIdentity("team", "a" * 40, IDENTITY.uid)
    found = {names.shared_service_name(job, number, f"{'s' * 55}{end}") for number in (1, 12) for end in "ab"}
    assert len(found) == 4
    assert all(len(name) <= 63 and not name.endswith("-") and name.startswith(f"{job.prefix}-svc-") for name in found)
    assert names.shared_service_name(IDENTITY, 1, "judge") == NAME
    assert names.generation_in("sums-0a1b2-spec-12") == names.generation_in("sums-0a1b2-12") == 12


def test_the_objects_are_frozen_with_the_cluster_and_only_where_there_are_any() -> None:
    for document, kinds in ((spec(), 3), (small_spec(), 0)):
        kind = typed(document)
        frozen = configmap.build_cluster_config(IDENTITY, kind, 1, LAUNCHER(kind).job_config(IDENTITY, kind, 1))
        assert configmap.read_services(frozen) == build_shared_services(IDENTITY, kind, 1)
        assert len(configmap.read_services(frozen)) == kinds
        assert (configmap.SERVICES_KEY in frozen["data"]) == bool(kinds)


def test_a_later_generation_of_the_same_spec_has_the_same_services() -> None:
    kind = typed(spec())
    config = LAUNCHER(kind).job_config(IDENTITY, kind, 2)
    found = configmap.build_cluster_config(IDENTITY, kind, 2, config, configmap.Circumstances(spec_generation=1))
    assert configmap.read_services(found) == build_shared_services(IDENTITY, kind, 1)


def test_snapshots_of_services_in_the_pods_are_as_before_the_field() -> None:
    (beside,) = configmap.spec_document(typed(spec(SHARED | {"placement": "Pod"})))["services"]
    assert not {"placement", "replicas"} & set(beside)
    (own,) = configmap.spec_document(typed(spec()))["services"]
    assert (own["placement"], own["replicas"]) == ("Shared", 1)
    assert digest(beside) != digest(own)


def test_a_service_reaches_no_ray_without_tokens() -> None:
    old = spec(runtime={"image": "x:1", "rayVersion": "2.47.1", "unauthenticatedRay": True})
    policy = build_network_policy(build_raycluster(IDENTITY, typed(old), 1, "d"))
    assert policy is not None
    others = [{"key": "rljob.dev/service", "operator": "DoesNotExist"}]
    assert policy["spec"]["podSelector"]["matchExpressions"] == others
    assert policy["spec"]["ingress"][0]["from"][0]["podSelector"]["matchExpressions"] == others
