"""Classes that an administrator added: values that a row leaves open are required of the job."""

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed, validate

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.validate import warnings_of
from rljob.launchers import LAUNCHER
from rljob.render.accelerator_table import AcceleratorTable, read_table
from rljob.render.accelerators import BUILT_IN, built_in_document, facts_of
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


LAB = AcceleratorTable(read_table(built_in_document(), {"lab": ROW}))


def refused(spec: Json, accelerators: AcceleratorTable = LAB) -> dict[str, str]:
    return {v.field: v.message for v in validate("sums", spec, accelerators=accelerators).violations}


def test_two_tables_are_used_side_by_side() -> None:
    small = AcceleratorTable(read_table(built_in_document(), {"lab": ROW | {"devicesPerNode": 4}}))
    sized = merged(SPEC, group({"devicesPerNode": 8, "template": {"cpu": "64", "memory": "512Gi"}}))
    assert refused(sized, LAB) == {}
    assert "a node of class lab has 4" in refused(sized, small)["spec.workerGroups[0].devicesPerNode"]
    assert "class lab does not exist" in refused(sized, BUILT_IN)["spec.accelerator.class"]
    specs = [typed(sized, table) for table in (LAB, small)]
    assert [facts_of(spec).devices_per_node for spec in specs] == [8, 4]
    assert specs[0].model_dump_json() == specs[1].model_dump_json()


def test_a_spec_without_a_table_is_not_judged_by_the_built_in_one() -> None:
    unbound = RLJobSpec.model_validate(small_spec())
    with pytest.raises(AssertionError, match="class cpu was parsed without an accelerator table"):
        facts_of(unbound)


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


def test_a_variable_of_the_class_that_the_job_sets_is_a_warning() -> None:
    entries = [{"name": "HCCL_BUFFSIZE", "value": "900"}]
    spec = merged(SPEC, group({"devicesPerNode": 8, "template": {"cpu": "64", "memory": "512Gi", "env": entries}}))
    warnings = map(str, warnings_of(typed(spec, LAB), LAUNCHER))
    assert any("HCCL_BUFFSIZE" in warning and "300" in warning for warning in warnings)


def test_ports_of_the_node_reach_ray_and_exporter_and_leave_what_a_patch_adds_alone() -> None:
    sidecar = {"name": "beside", "image": "x"}
    spec = small_spec({"network": {"mode": "Host"}, "podSpecPatch": {"head": {"containers": [sidecar]}}})
    made = build_raycluster(IDENTITY, typed(spec), 1, "digest", block=PortBlock(20_000))
    pod = made["spec"]["headGroupSpec"]["template"]["spec"]
    containers = {c["name"]: c for c in (*pod["containers"], *pod["initContainers"])}
    assert all(20_000 <= port["containerPort"] < 20_032 for port in containers["ray-head"]["ports"])
    assert "ports" not in containers["beside"]
    assert PortBlock(20_000).api in {port["containerPort"] for port in containers["exporter"]["ports"]}
