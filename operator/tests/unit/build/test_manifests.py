"""What the manifests hold, beyond the golden files: each option in its place, nothing where nothing was asked for."""

import json
from typing import Any

import pytest
from builders import IDENTITY, Json, config, group, small_spec, snapshot, typed

from rljob.build import configmap, pods
from rljob.build.initializer import build_initializer
from rljob.build.raycluster import build_raycluster, build_token_secret

TEMPLATE = {
    "cpu": "10",
    "memory": "64Gi",
    "sharedMemory": "8Gi",
    "env": [{"name": "A", "value": "b"}, {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
    "volumes": [{"name": "models", "hostPath": {"path": "/models"}}, {"name": "scratch", "emptyDir": {}}],
    "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    "labels": {"rljob.dev/job": "stolen", "team": "a"},
    "nodeSelector": {"zone": "z"},
    "tolerations": [{"key": "npu"}],
}
SPEC = small_spec(
    group({"template": TEMPLATE})
    | {
        "code": {"type": "ConfigMap", "configMap": {"name": "code"}},
        "scheduling": {"queueName": "team"},
        "runtime": {"imagePullSecrets": ["pull"], "serviceAccountName": "trainer"},
        "initializers": [{"name": "prepare", "command": ["true"], "image": "other:1"}],
    }
)


def render(spec: Json) -> Json:
    return build_raycluster(IDENTITY, typed(spec), 1, "digest")


def worker(spec: Json) -> Any:  # noqa: ANN401 - JSON
    return render(spec)["spec"]["workerGroupSpecs"][0]["template"]


def head(spec: Json) -> Any:  # noqa: ANN401 - JSON
    return render(spec)["spec"]["headGroupSpec"]["template"]


def test_a_queued_cluster_is_born_suspended() -> None:
    assert render(SPEC)["spec"]["suspend"] is True
    assert render(SPEC)["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    assert "suspend" not in render(small_spec())["spec"]


def test_the_head_holds_no_npu_and_each_worker_all_of_its_node() -> None:
    assert all("huawei.com/Ascend910" not in c["resources"]["requests"] for c in head(SPEC)["spec"]["containers"])
    resources = worker(SPEC)["spec"]["containers"][0]["resources"]
    assert resources["limits"] == {"huawei.com/Ascend910": "2", "memory": "64Gi"}
    assert resources["requests"] == {"huawei.com/Ascend910": "2", "memory": "64Gi", "cpu": "10"}


def test_ray_is_told_of_the_npus() -> None:
    params = render(SPEC)["spec"]["workerGroupSpecs"][0]["rayStartParams"]
    assert json.loads(json.loads(params["resources"])) == {"NPU": 2}
    assert params["num-cpus"] == "16"
    on_npu = render(small_spec(group({"devicesPerNode": 16}) | {"accelerator": {"class": "atlas-a3-superpod"}}))
    assert "num-cpus" not in on_npu["spec"]["workerGroupSpecs"][0]["rayStartParams"]


def test_a_template_reaches_the_pods_but_never_our_own_labels() -> None:
    assert worker(SPEC)["metadata"]["labels"]["rljob.dev/job"] == "sums"
    assert worker(SPEC)["metadata"]["labels"]["team"] == "a"
    assert worker(SPEC)["spec"]["nodeSelector"] == {"zone": "z"}
    assert worker(SPEC)["spec"]["tolerations"] == [{"key": "npu", "operator": "Exists"}]
    env = worker(SPEC)["spec"]["containers"][0]["env"]
    assert {"name": "A", "value": "b"} in env
    assert {"name": "ME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}} in env


def test_head_workers_and_initializers_see_the_same_volumes() -> None:
    initializer = build_initializer(IDENTITY, typed(SPEC), typed(SPEC).initializers[0])["spec"]["template"]
    for template in (head(SPEC), worker(SPEC), initializer):
        names = [volume["name"] for volume in template["spec"]["volumes"]]
        assert {"models", "scratch", "rljob-code"} <= set(names)
        assert len(names) == len(set(names))
        paths = [mount["mountPath"] for mount in template["spec"]["containers"][0]["volumeMounts"]]
        assert {"/models", "/code"} <= set(paths)
        assert len(paths) == len(set(paths))


def test_a_folder_of_the_node_must_be_there() -> None:
    volumes = pods.user_volumes(typed(SPEC).worker_groups[0].template)
    assert volumes[0] == {"name": "models", "hostPath": {"path": "/models", "type": "Directory"}}


def test_shared_memory_is_mounted_where_asked_for() -> None:
    memory = {"name": "shared-memory", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}}
    assert memory in worker(SPEC)["spec"]["volumes"]
    assert memory not in head(SPEC)["spec"]["volumes"]


def test_pull_secrets_and_account_stand_in_every_pod() -> None:
    for template in (head(SPEC), worker(SPEC)):
        assert template["spec"]["imagePullSecrets"] == [{"name": "pull"}]
        assert template["spec"]["serviceAccountName"] == "trainer"
        assert template["spec"]["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in worker(small_spec())["spec"]


@pytest.mark.parametrize(("image", "expected"), [("other:1", "other:1"), (None, typed().runtime.image)])
def test_an_initializer_runs_its_own_image_or_that_of_the_job(image: str | None, expected: str) -> None:
    initializer = typed(SPEC).initializers[0].model_copy(update={"image": image})
    made = build_initializer(IDENTITY, typed(SPEC), initializer)
    assert made["spec"]["template"]["spec"]["containers"][0]["image"] == expected


def test_no_plan_holds_a_secrets_data() -> None:
    secret = build_token_secret(IDENTITY, 1)
    assert "data" not in secret
    assert secret["metadata"]["name"] == render(SPEC)["metadata"]["name"]


def test_what_is_frozen_reads_back_as_it_was() -> None:
    assert configmap.read_snapshot(snapshot(SPEC)) == typed(SPEC)
    frozen = config(SPEC)
    digest = frozen["metadata"]["annotations"]["rljob.dev/job-digest"]
    assert configmap.read_raycluster(frozen) == build_raycluster(IDENTITY, typed(SPEC), 1, digest)
    assert frozen["immutable"] is True
