"""Requests and limits: what the job states, completed by defaults, in every container that the operator creates."""

from __future__ import annotations

from typing import Any

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed

from rljob.api.quantity import quantity
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import BUILT_IN
from rljob.render.initializer import build_initializer, initializers
from rljob.render.raycluster import build_raycluster, sidecar_names
from rljob.render.resources import RAY

GIT = {"type": "Git", "git": {"url": "https://example.com/x.git", "revision": "a" * 40}}
HELPERS = {
    "code": GIT,
    "services": [{"name": "judge", "image": "x", "port": 8999}],
    "initializers": [{"name": "prepare", "command": ["true"]}],
}
SPECS = {
    "least": small_spec(),
    "helpers": small_spec(HELPERS),
    "npus": merged(
        small_spec(group({"nodes": 2, "devicesPerNode": 16}) | HELPERS), {"accelerator": {"class": "atlas-a3"}}
    ),
}


def pods_of(spec: Json) -> list[Json]:
    typed_spec = typed(spec)
    cluster = build_raycluster(IDENTITY, typed_spec, 1, "digest")["spec"]
    jobs = [build_initializer(IDENTITY, typed_spec, each) for each in initializers(typed_spec)]
    templates = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"], *(job["spec"] for job in jobs)]
    return [template["template"]["spec"] for template in templates]


def containers_of(spec: Json) -> list[Json]:
    return [each for pod in pods_of(spec) for each in (*pod["containers"], *pod.get("initContainers", ()))]


def on_head(template: Json) -> Any:  # noqa: ANN401 - JSON
    head = build_raycluster(IDENTITY, typed(small_spec({"head": {"template": template}})), 1, "digest")["spec"]
    return head["headGroupSpec"]["template"]["spec"]["containers"][0]["resources"]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_a_quota_on_any_request_or_limit_accepts_every_container(spec: Json) -> None:
    for container in containers_of(spec):
        given = container["resources"]
        for name in ("cpu", "memory"):
            assert quantity(given["requests"][name]) <= quantity(given["limits"][name]), container["name"]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_every_container_leaves_its_last_lines_in_the_status_of_its_pod(spec: Json) -> None:
    told = {container["name"]: container.get("terminationMessagePolicy") for container in containers_of(spec)}
    assert set(told.values()) == {"FallbackToLogsOnError"}, told


def test_containers_of_the_user_leave_their_last_lines() -> None:
    template = {"initContainers": [{"name": "before", "image": "x"}], "sidecars": [{"name": "mine", "image": "x"}]}
    *_, worker = pods_of(small_spec(group({"template": template})))
    told = {each["name"]: each["terminationMessagePolicy"] for each in worker["initContainers"]}
    assert told == dict.fromkeys(("rljob-runtime", "before", "mine"), "FallbackToLogsOnError")


def test_sidecars_are_known_by_their_names() -> None:
    sidecar, init = {"name": "shipper", "image": "x"}, {"name": "warm", "image": "x"}
    spec = small_spec(group({"template": {"sidecars": [sidecar], "initContainers": [init]}}) | HELPERS)
    rendered = {
        each["name"] for pod in pods_of(spec) for each in pod.get("initContainers", ()) if "restartPolicy" in each
    }
    assert sidecar_names(typed(spec)) == rendered == {"exporter", "judge", "shipper"}


@pytest.mark.parametrize(("cpu", "limit"), [("300m", "4"), ("4", "4"), ("96", "96")])
def test_a_cpu_limit_is_the_request_and_at_least_four(cpu: str, limit: str) -> None:
    given = on_head({"cpu": cpu})
    assert (given["requests"]["cpu"], given["limits"]["cpu"]) == (cpu, limit)


def test_shared_memory_is_added_to_the_default_limit_of_memory() -> None:
    given = on_head({"sharedMemory": "8Gi"})
    assert (given["requests"]["memory"], given["limits"]["memory"]) == (RAY.memory, f"{72 * 1024}Mi")


def test_ray_counts_what_a_worker_requests_and_not_its_limit() -> None:
    """KubeRay passes the limit to Ray where no number is given (v1.6.2, common/pod.go)."""
    row = BUILT_IN["cpu"].model_copy(update={"ray_cpus_per_device": None})
    for template, cpus, limit in (({"cpu": "3500m"}, "4", "4"), ({"cpu": "1"}, "1", "4"), ({}, None, "16")):
        spec = typed(small_spec(group({"template": template})), AcceleratorTable({**BUILT_IN, "cpu": row}))
        (workers,) = build_raycluster(IDENTITY, spec, 1, "digest")["spec"]["workerGroupSpecs"]
        assert workers["rayStartParams"].get("num-cpus") == cpus
        assert workers["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == limit
