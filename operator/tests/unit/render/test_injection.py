"""Jobs whose image need not have the runtime: what an init container brings, and which helpers are the operator's."""

from __future__ import annotations

from typing import Any

from builders import IDENTITY, Json, merged, small_spec, typed
from corpus.command import command

from rljob.api.v1alpha1 import RLJobSpec
from rljob.render import labels, stopping
from rljob.render.accelerator_table import OPERATOR_IMAGE
from rljob.render.accelerators import BUILT_IN
from rljob.render.initializer import build_initializer, initializers
from rljob.render.raycluster import build_raycluster

OPERATOR = "registry.example/rljob/operator:1.2.3"
IMAGE = "quay.io/ascend/verl:any"
INJECTED = {"runtime": {"image": IMAGE, "injection": "Auto"}}
GIT = {"type": "Git", "git": {"url": "https://git.example/r.git", "revision": "a" * 40}}
SAVES = {"checkpoint": {"path": "/data/checkpoints", "everySteps": 5}}


def injected(change: Json | None = None) -> RLJobSpec:
    return typed(small_spec(merged(INJECTED, change or {})), BUILT_IN.with_operator_image(OPERATOR))


def pods_of(spec: RLJobSpec) -> list[dict[str, Any]]:
    cluster = build_raycluster(IDENTITY, spec, 1, "digest")["spec"]
    groups = (cluster["headGroupSpec"], *cluster["workerGroupSpecs"])
    return [group["template"]["spec"] for group in groups]


def env_of(container: dict[str, Any]) -> dict[str, Any]:
    return {variable["name"]: variable.get("value") for variable in container["env"]}


def test_head_and_workers_get_the_runtime_of_the_operators_image_read_only() -> None:
    for pod in pods_of(injected()):
        (copies,) = [c for c in pod["initContainers"] if c["name"] == "rljob-runtime"]
        assert copies["image"] == OPERATOR
        assert copies["command"][-3:] == ["copy-runtime", "--with-verl", "/rljob"]
        assert copies["securityContext"]["allowPrivilegeEscalation"] is False
        assert set(copies["resources"]["limits"]) == {"cpu", "memory"}
        (ray,) = pod["containers"]
        assert ray["image"] == IMAGE
        assert {"name": "rljob-runtime", "mountPath": "/rljob", "readOnly": True} in ray["volumeMounts"]
        assert {"name": "rljob-runtime", "emptyDir": {"sizeLimit": "256Mi"}} in pod["volumes"]
        assert env_of(ray)["BASH_ENV"] == "/etc/rljob/bash-env"
        assert "PYTHONPATH" not in env_of(ray)


def test_a_command_gets_no_verl() -> None:
    for pod in pods_of(typed(small_spec(command(**INJECTED)), BUILT_IN)):
        (copies,) = [c for c in pod["initContainers"] if c["name"] == "rljob-runtime"]
        assert copies["command"][-2:] == ["copy-runtime", "/rljob"]


def test_it_is_copied_before_any_container_of_the_user_starts() -> None:
    template = {"initContainers": [{"name": "mine", "image": "busybox"}]}
    spec = injected({"workerGroups": [{"name": "trainer", "devicesPerNode": 2, "template": template}]})
    names = [container["name"] for container in pods_of(spec)[1]["initContainers"]]
    assert names == ["rljob-runtime", "mine"]


def test_exporter_and_code_come_from_the_operators_image() -> None:
    spec = injected({"code": GIT})
    head, worker = pods_of(spec)
    images = {container["name"]: container["image"] for container in head["initContainers"]}
    assert images == {"exporter": OPERATOR, "rljob-runtime": OPERATOR, "fetch-code": OPERATOR}
    assert [c["image"] for c in worker["initContainers"]] == [OPERATOR, OPERATOR]
    (first,) = initializers(spec)
    pod = build_initializer(IDENTITY, spec, first)["spec"]["template"]["spec"]
    assert [c["image"] for c in pod["initContainers"]] == [OPERATOR]
    assert [c["image"] for c in pod["containers"]] == [IMAGE]


def test_hooks_find_the_runtime_without_a_shell() -> None:
    head, worker = pods_of(injected(SAVES))
    for pod in (head, worker):
        command = pod["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert command[:5] == ["env", "PYTHONPATH=/rljob/code", "python", "-m", "rljob_runtime"]
    assert "health-check" in stopping.cluster_files(injected(SAVES))["bash-env"]


def test_every_bash_puts_the_runtime_before_the_images_own_path() -> None:
    text = stopping.cluster_files(injected())["bash-env"]
    assert 'export PYTHONPATH="/rljob/code${PYTHONPATH:+:$PYTHONPATH}"' in text


def test_the_cluster_names_the_image_of_its_runtime() -> None:
    assert build_raycluster(IDENTITY, injected(), 1, "d")["metadata"]["annotations"][labels.RUNTIME_IMAGE] == OPERATOR
    assert injected({"runtime": {"image": IMAGE, "injection": "Auto"}}).runtime.helper_image == OPERATOR
    assert typed(small_spec(INJECTED), BUILT_IN).runtime.injected_image == OPERATOR_IMAGE


def test_without_injection_everything_is_in_the_jobs_image() -> None:
    spec = typed(small_spec({"runtime": {"image": IMAGE, "injection": "Never"}, "code": GIT}), BUILT_IN)
    cluster = build_raycluster(IDENTITY, spec, 1, "d")
    assert labels.RUNTIME_IMAGE not in cluster["metadata"]["annotations"]
    for pod in pods_of(spec):
        assert {c["image"] for c in (*pod["initContainers"], *pod["containers"])} == {IMAGE}
        assert "BASH_ENV" not in env_of(pod["containers"][0])
        assert "rljob-runtime" not in {volume["name"] for volume in pod["volumes"]}
    assert stopping.cluster_files(spec) == {}
