"""The security context of the containers that the operator makes: restricted, unless an image may need more."""

from __future__ import annotations

from typing import Any

import pytest
from builders import IDENTITY, Json, merged, small_spec, typed
from corpus.bad import head

from rljob.api.v1alpha1 import RLJobSpec
from rljob.reading.kept_records import reader_pod
from rljob.render.initializer import build_initializer, initializers
from rljob.render.raycluster import build_raycluster

RESTRICTED = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}
MAYBE_ROOT = {name: value for name, value in RESTRICTED.items() if name != "runAsNonRoot"}
GIT = {"type": "Git", "git": {"url": "https://git.example/r.git", "revision": "a" * 40}}
EVERYTHING: Json = {
    "code": GIT,
    "initializers": [{"name": "get", "command": ["x"]}],
    "services": [{"name": "judge", "image": "registry.example/judge:1", "port": 9000}],
}
NPU = {"accelerator": {"class": "atlas-a3"}, "workerGroups": [{"name": "trainer", "devicesPerNode": 16}]}
NEVER = {"runtime": {"image": "registry.example/rljob/runtime:cpu", "injection": "Never"}}
USERS = frozenset({"ray-head", "ray-worker", "judge", "initializer"})
"""Containers that run an image of the user's."""


def containers(spec: RLJobSpec) -> dict[str, Any]:
    """Return the security contexts of all containers of all pods, by pod and container."""
    cluster = build_raycluster(IDENTITY, spec, 1, "digest")["spec"]
    pods = {"head": cluster["headGroupSpec"]["template"]["spec"]}
    pods |= {f"worker-{group['groupName']}": group["template"]["spec"] for group in cluster["workerGroupSpecs"]}
    for each in initializers(spec):
        pods[f"job-{each.name}"] = build_initializer(IDENTITY, spec, each)["spec"]["template"]["spec"]
    return {
        f"{name}/{container['name']}": container.get("securityContext")
        for name, pod in pods.items()
        for container in (*pod.get("initContainers", ()), *pod["containers"])
    }


def split(spec: RLJobSpec) -> tuple[list[Any], list[Any]]:
    """Return the contexts of containers of the user's images, and of the operator's own programs."""
    found = containers(spec)
    users = [context for name, context in found.items() if name.rpartition("/")[2] in USERS]
    own = [without_read_only(context) for name, context in found.items() if name.rpartition("/")[2] not in USERS]
    assert users
    assert own
    return users, own


def without_read_only(context: Json) -> Json:
    return {name: value for name, value in context.items() if name != "readOnlyRootFilesystem"}


def everything(*changes: Json) -> RLJobSpec:
    return typed(small_spec(merged(EVERYTHING, *changes)))


def security(context: Json, *others: Json) -> RLJobSpec:
    """Return a spec whose pods all have a security context."""
    template = {"template": {"securityContext": context}}
    group = merged({"name": "trainer", "nodes": 1, "devicesPerNode": 2}, template)
    spec = merged({"head": template, "workerGroups": [group]}, *others)
    if others:
        spec["workerGroups"] = [merged(others[0]["workerGroups"][0], template)]
    return everything(spec)


def test_every_container_of_a_job_on_cpus_is_restricted() -> None:
    found = containers(everything())
    assert {without_read_only(context) == RESTRICTED for context in found.values()} == {True}, found
    assert len(found) >= 10
    assert found["head/rljob-runtime"]["readOnlyRootFilesystem"] is True


def test_of_a_job_on_npus_only_our_own_programs_are() -> None:
    users, own = split(everything(NPU))
    assert set(map(str, users)) == {"None"}
    assert all(context == RESTRICTED for context in own)


@pytest.mark.parametrize("stated", [{"runAsNonRoot": True}, {"runAsNonRoot": True, "runAsUser": 1000}])
def test_a_job_on_npus_whose_images_need_no_root_may_state_it(stated: Json) -> None:
    users, own = split(security(stated, NPU))
    assert all(context == RESTRICTED for context in (*users, *own))


def test_a_user_other_than_root_says_nothing_about_what_npus_need() -> None:
    assert set(map(str, split(security({"runAsUser": 1000}, NPU))[0])) == {"None"}
    assert all(context == RESTRICTED for context in split(security({"runAsUser": 1000}))[0])


def test_root_is_not_refused_where_the_pod_states_it() -> None:
    users, own = split(security({"runAsUser": 0}))
    assert set(map(str, users)) == {"None"}
    assert all(context == MAYBE_ROOT for context in own)


def test_the_operators_image_is_not_root_where_the_users_may_be() -> None:
    users, own = split(security({"runAsNonRoot": False}))
    assert set(map(str, users)) == {"None"}
    assert all(context == RESTRICTED for context in own)


def test_our_programs_in_the_users_image_have_its_user() -> None:
    assert all(context == MAYBE_ROOT for context in split(everything(NPU, NEVER))[1])
    assert all(context == RESTRICTED for context in split(everything(NEVER))[1])


def test_a_patch_of_the_pod_counts_as_the_template_does() -> None:
    root: Json = {"securityContext": {"runAsUser": 0}}
    found = containers(everything({"podSpecPatch": {"head": root, "workers": root}}))
    assert found["head/ray-head"] is None
    assert found["worker-trainer/judge"] is None
    assert found["head/exporter"] == MAYBE_ROOT
    assert found["job-get/initializer"] == RESTRICTED


@pytest.mark.parametrize("more", [{"privileged": True}, {"capabilities": {"add": ["SYS_ADMIN"]}}])
def test_privileges_of_a_patch_do_not_contradict_ours(more: Json) -> None:
    patch = {"containers": [{"name": "ray-worker", "securityContext": more}]}
    found = containers(everything({"podSpecPatch": {"workers": patch}}))
    # The API server refuses a container with both.
    assert "allowPrivilegeEscalation" not in found["worker-trainer/ray-worker"]
    assert found["head/ray-head"] == RESTRICTED


def test_a_capability_of_a_patch_is_added_to_none() -> None:
    patch = {"containers": [{"name": "ray-worker", "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}}}]}
    found = containers(everything({"podSpecPatch": {"workers": patch}}))
    assert found["worker-trainer/ray-worker"] == merged(RESTRICTED, {"capabilities": {"add": ["IPC_LOCK"]}})


def test_containers_of_a_template_are_the_users() -> None:
    mine = {"name": "mine", "image": "registry.example/mine:1"}
    found = containers(everything({"head": {"template": {"sidecars": [mine]}}}))
    assert found["head/mine"] is None


RECORDS: Json = merged(
    head(
        {
            "volumes": [{"name": "runs", "persistentVolumeClaim": {"claimName": "runs"}}],
            "volumeMounts": [{"name": "runs", "mountPath": "/runs"}],
        }
    ),
    {"observability": {"logPath": "/runs/logs"}},
)


@pytest.mark.parametrize(("change", "context"), [({}, RESTRICTED), (NPU, MAYBE_ROOT)])
def test_the_pod_that_reads_the_records_has_the_user_of_the_image(change: Json, context: Json) -> None:
    (reader,) = reader_pod(IDENTITY, typed(small_spec(merged(RECORDS, change))), "reader")["spec"]["containers"]
    assert reader["securityContext"] == context


def test_the_pod_that_reads_the_records_of_an_unknown_class_may_be_root() -> None:
    spec = RLJobSpec.model_validate(small_spec(RECORDS), context={})
    (reader,) = reader_pod(IDENTITY, spec, "reader")["spec"]["containers"]
    assert reader["securityContext"] == MAYBE_ROOT
