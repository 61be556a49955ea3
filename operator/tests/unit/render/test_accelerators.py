"""The accelerator table: its content, how an administrator changes it, and how an invalid one is rejected."""

import json

import pytest
import yaml
from builders import REPOSITORY, Json

from rljob.api.accelerators import AcceleratorFacts
from rljob.api.schema import structural_schema
from rljob.render.accelerator_table import TableError, read_table
from rljob.render.accelerators import BUILT_IN, VENDOR_RESOURCES, built_in_document

CHART = REPOSITORY / "charts/rljob-operator"
PLAIN = {"description", "platform", "driverMounts", "sources"}
"""Sources without a reference: our own choices, and a default."""


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_value_of_a_row_has_a_source(name: str) -> None:
    row = built_in_document()[name]
    assert set(row) - PLAIN == set(row["sources"])
    assert BUILT_IN[name].resource in VENDOR_RESOURCES


@pytest.mark.parametrize("name", BUILT_IN)
def test_nodes_hold_whole_cards_and_pods_share_their_cores_evenly(name: str) -> None:
    row = BUILT_IN[name]
    assert row.devices_per_node % row.dies_per_card == 0
    assert row.pod is None or int(row.pod.cpu) % row.devices_per_node == 0


@pytest.mark.parametrize(
    ("name", "devices", "cards", "policy"),
    [
        ("atlas-a2", 8, 8, "chip8-node8"),
        ("atlas-a3", 16, 8, "chip2-node16"),
        ("atlas-a3-superpod", 16, 8, "chip2-node16-sp"),
        ("cce-a3", 16, 8, None),
    ],
)
def test_the_shapes_of_nodes(name: str, devices: int, cards: int, policy: str | None) -> None:
    row = BUILT_IN[name]
    assert (row.devices_per_node, row.devices_per_node // row.dies_per_card) == (devices, cards)
    assert row.schedule_policy == policy


def test_the_chart_holds_the_same_table_and_knows_its_fields() -> None:
    assert yaml.safe_load((CHART / "files/accelerators.yaml").read_text()) == built_in_document()
    schema = json.loads((CHART / "values.schema.json").read_text())["properties"]["accelerators"]
    assert schema["additionalProperties"] == structural_schema(AcceleratorFacts) | {"additionalProperties": False}


def test_an_admin_changes_a_value_and_leaves_the_others() -> None:
    rows = read_table(built_in_document(), {"atlas-a2": {"pod": {"cpu": "160"}, "nodeLabels": {"zone": ["a"]}}})
    assert rows["atlas-a2"].pod is not None
    assert (rows["atlas-a2"].pod.cpu, rows["atlas-a2"].pod.memory) == ("160", "1400Gi")
    assert rows["atlas-a2"].node_labels == {"zone": ["a"]}
    assert rows["atlas-a3"] == BUILT_IN["atlas-a3"]


def test_an_admin_adds_a_class() -> None:
    own = {"description": "x", "platform": "npu", "resource": "huawei.com/npu", "devicesPerNode": 8}
    assert read_table(built_in_document(), {"lab": own})["lab"].devices_per_node == 8


BAD: dict[str, tuple[Json, str, str]] = {
    "no number": ({"devicesPerNode": "many"}, ".devicesPerNode", "'many': Input should be a valid integer"),
    "no devices": ({"devicesPerNode": 0}, ".devicesPerNode", "greater than or equal to 1"),
    "a made-up field": ({"devices": 8}, ".devices", "is not a field of a row; the fields are description, platform"),
    "a slice": ({"resource": "huawei.com/Ascend910-2c"}, ".resource", "is a slice of a device (vNPU)"),
    "no resource": ({"resource": "npu"}, ".resource", "is not an extended resource; use a name such as"),
    "broken cards": ({"diesPerCard": 3}, ".diesPerCard", "3 does not divide devicesPerNode 8"),
    "a policy for others": ({"schedulePolicy": "chip2-node16"}, ".schedulePolicy", "is for nodes of 16 devices"),
    "no policy": ({"schedulePolicy": "chip1-softShareDev"}, ".schedulePolicy", "is not a policy for whole devices"),
    "a class without name": (
        {"driverMounts": "RuntimeClass", "runtimeClassName": None}, ".runtimeClassName", "is required with driverMounts"
    ),
    "too few cores": ({"pod": {"cpu": "16"}}, ".pod.cpu", "use a multiple of 8, at least 32"),
    "uneven cores": ({"pod": {"cpu": "100"}}, ".pod.cpu", "the same number of whole cores"),
    "too much shared memory": ({"pod": {"sharedMemory": "2Ti"}}, ".pod.sharedMemory", "counts as memory"),
    "a variable of the plug-in": ({"env": {"ASCEND_VISIBLE_DEVICES": "0"}}, ".env.ASCEND_VISIBLE_DEVICES", "plug-in"),
    "a variable of the contract": ({"env": {"RLJOB_SPOOL": "/x"}}, ".env.RLJOB_SPOOL", "RLJOB_ belongs to"),
    "a source of nothing": ({"sources": {"speed": "x"}}, ".sources.speed", "is not a field of a row"),
    "a label without name": ({"labels": {"team/": "x"}}, ".labels[team/]", "is not a valid label name; use one such"),
    "a sentence as a label": ({"labels": {"team": "our own"}}, ".labels[team]", "'our own' is not a valid label value"),
    "an annotation without name": ({"annotations": {"a b": "x"}}, ".annotations[a b]", "is not a valid label name"),
    "a head's without name": ({"headAnnotations": {"-": "x"}}, ".headAnnotations[-]", "is not a valid label name"),
    "a node's label of no name": ({"nodeLabels": {"A/b": []}}, ".nodeLabels[A/b]", "is not a valid label name"),
    "a node label of no value": ({"nodeLabels": {"zone": ["a,b"]}}, ".nodeLabels[zone]", "is not a valid label value"),
    "a path of no kind": ({"hostPaths": [{"path": "/x", "type": "Socket"}]}, ".hostPaths[0].type", "'Socket': "),
}  # fmt: skip


@pytest.mark.parametrize(("change", "field", "message"), BAD.values(), ids=BAD)
def test_a_bad_row_is_refused_with_field_and_fix(change: Json, field: str, message: str) -> None:
    with pytest.raises(TableError) as caught:
        read_table(built_in_document(), {"atlas-a2": change})
    (problem,) = caught.value.problems
    assert problem.field == f"accelerators.atlas-a2{field}"
    assert message in problem.message


def test_all_problems_of_a_table_are_reported_at_once() -> None:
    with pytest.raises(TableError) as caught:
        read_table({"A2": {"description": "x"}, "b": 1, **{f"c{n}": {} for n in range(64)}})
    told = {problem.field: problem.message for problem in caught.value.problems}
    assert told["accelerators.b"] == "must be a map of the row's fields"
    assert told["accelerators.A2"].startswith("is not a valid class name")
    assert told["accelerators.A2.resource"] == "is required and not set"
    assert told["accelerators"] == "65 rows; the maximum is 64"
