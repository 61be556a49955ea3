"""Classes that an administrator added: values that a row leaves open are required of the job."""

from collections.abc import Iterator

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed, validate

from rljob.core.validation.validate import warnings_of
from rljob.launchers import LAUNCHER
from rljob.render.accelerator_table import read_table
from rljob.render.accelerators import ACCELERATORS, built_in_document
from rljob.render.ports import PortBlock
from rljob.render.raycluster import build_raycluster

ROW = {
    "description": "x",
    "platform": "npu",
    "resource": "huawei.com/npu",
    "devicesPerNode": 8,
    "env": {"HCCL_BUFFSIZE": "300"},
}
SPEC = merged(small_spec(group({"devicesPerNode": 8})), {"accelerator": {"class": "lab"}})


@pytest.fixture(autouse=True)
def lab() -> Iterator[None]:
    ACCELERATORS.use(read_table(built_in_document(), {"lab": ROW}))
    yield
    ACCELERATORS.use(read_table(built_in_document()))


def refused(spec: Json) -> dict[str, str]:
    return {violation.field: violation.message for violation in validate("sums", spec).violations}


def test_a_class_without_a_size_needs_one_from_the_job() -> None:
    found = refused(SPEC)
    template = "spec.workerGroups[0].template"
    assert "is required on NPU classes" in found[f"{template}.cpu"]
    assert "is required on NPU classes" in found[f"{template}.memory"]
    sized = merged(SPEC, group({"devicesPerNode": 8, "template": {"cpu": "64", "memory": "512Gi"}}))
    assert refused(sized) == {}


def test_the_container_runtime_needs_a_name_from_somewhere() -> None:
    found = refused(merged(SPEC, {"accelerator": {"class": "lab", "driverMounts": "RuntimeClass"}}))
    assert "class lab names none" in found["spec.runtime.runtimeClassName"]


def test_a_variable_of_the_class_that_the_job_sets_is_told() -> None:
    entries = [{"name": "HCCL_BUFFSIZE", "value": "900"}]
    spec = merged(SPEC, group({"devicesPerNode": 8, "template": {"cpu": "64", "memory": "512Gi", "env": entries}}))
    assert any(
        "HCCL_BUFFSIZE" in str(warning) and "300" in str(warning) for warning in warnings_of(typed(spec), LAUNCHER)
    )


def test_ports_of_the_node_reach_ray_and_exporter_and_leave_what_a_patch_adds_alone() -> None:
    sidecar = {"name": "beside", "image": "x"}
    spec = small_spec({"network": {"mode": "Host"}, "podSpecPatch": {"head": {"containers": [sidecar]}}})
    made = build_raycluster(IDENTITY, typed(spec), 1, "digest", block=PortBlock(20_000))
    pod = made["spec"]["headGroupSpec"]["template"]["spec"]
    containers = {c["name"]: c for c in (*pod["containers"], *pod["initContainers"])}
    assert all(20_000 <= port["containerPort"] < 20_032 for port in containers["ray-head"]["ports"])
    assert "ports" not in containers["beside"]
    assert PortBlock(20_000).api in {port["containerPort"] for port in containers["exporter"]["ports"]}
