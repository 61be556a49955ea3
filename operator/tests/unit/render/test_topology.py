"""Topology requests to Kueue: blocks of a super-pod, a domain for the whole job, or any node that it chooses."""

from __future__ import annotations

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed, validate

from rljob.render.accelerator_table import AcceleratorTable, TableError, read_table
from rljob.render.accelerators import BUILT_IN, SUPER_POD, built_in_document
from rljob.render.raycluster import build_raycluster
from rljob.render.topology import ANYWHERE, BLOCK_LEVEL, BLOCK_SIZE, PREFERRED, REQUIRED

A3 = merged(small_spec(group({"nodes": 4, "devicesPerNode": 16})), {"accelerator": {"class": "atlas-a3-superpod"}})
QUEUED = merged(A3, {"scheduling": {"queueName": "cards"}})
RACK = "example.com/rack"
LEVELS = [SUPER_POD, "kubernetes.io/hostname"]


PLACED = AcceleratorTable(read_table(built_in_document(), {"atlas-a3-superpod": {"topologyLevels": LEVELS}}))
"""Queues place the class, as the chart writes it if a flavor has a topology."""
RACKS_ONLY = AcceleratorTable(read_table(built_in_document(), {"atlas-a3-superpod": {"topologyLevels": [RACK]}}))


def asked(spec: Json, part: str = "workers", accelerators: AcceleratorTable = BUILT_IN) -> Json:
    """Return the annotations that Kueue reads from the pods of a part."""
    made = build_raycluster(IDENTITY, typed(spec, accelerators), 1, "digest")["spec"]
    pods = made["headGroupSpec"] if part == "head" else made["workerGroupSpecs"][0]
    found = pods["template"]["metadata"]["annotations"]
    return {name: value for name, value in found.items() if name.startswith("kueue.x-k8s.io/")}


def wish(spec: Json, **topology: object) -> Json:
    return merged(spec, {"scheduling": {"topology": topology}})


@pytest.mark.parametrize(
    ("topology", "annotations"),
    [
        ({}, {}),
        ({"nodesPerSuperPodBlock": 2}, {BLOCK_LEVEL: SUPER_POD, BLOCK_SIZE: "2"}),
        ({"level": RACK}, {PREFERRED: RACK}),
        ({"level": RACK, "mode": "Required"}, {REQUIRED: RACK}),
        ({"mode": "Required"}, {REQUIRED: SUPER_POD}),
        ({"nodesPerSuperPodBlock": 2, "mode": "Required"}, {BLOCK_LEVEL: SUPER_POD, BLOCK_SIZE: "2"}),
        (
            {"nodesPerSuperPodBlock": 2, "level": RACK, "mode": "Required"},
            {REQUIRED: RACK, BLOCK_LEVEL: SUPER_POD, BLOCK_SIZE: "2"},
        ),
    ],
)
def test_a_queued_job_asks_kueue_for_its_places(topology: Json, annotations: Json) -> None:
    assert asked(wish(QUEUED, **topology)) == annotations
    assert asked(wish(QUEUED, **topology), "head") == {}
    assert asked(wish(A3, **topology)) == {}


def test_where_queues_place_a_class_every_job_of_it_asks_for_something() -> None:
    assert asked(QUEUED, accelerators=PLACED) == {ANYWHERE: "true"}
    assert asked(QUEUED, "head", PLACED) == {}
    assert asked(wish(QUEUED, mode="Required"), accelerators=PLACED) == {REQUIRED: SUPER_POD}
    assert asked(A3, accelerators=PLACED) == {}


def test_what_a_user_asks_kueue_himself_is_not_contradicted() -> None:
    template = {"template": {"annotations": {REQUIRED: SUPER_POD}}}
    own = merged(QUEUED, group({"nodes": 4, "devicesPerNode": 16} | template))
    assert asked(own, accelerators=PLACED) == {REQUIRED: SUPER_POD}


def test_a_level_that_queues_do_not_know_is_refused_where_it_would_wait_for_ever() -> None:
    (violation,) = validate("sums", wish(QUEUED, level=RACK), accelerators=PLACED).violations
    assert violation.field == "spec.scheduling.topology.level"
    assert violation.message == (
        f"{RACK} is not a topology level of class atlas-a3-superpod; levels are {', '.join(LEVELS)}"
    )
    known = wish(QUEUED, nodesPerSuperPodBlock=2, level=SUPER_POD)
    assert validate("sums", known, accelerators=PLACED).violations == ()
    assert validate("sums", wish(A3, level=RACK), accelerators=PLACED).violations == ()


def test_a_row_with_a_topology_without_its_super_pods_takes_no_blocks() -> None:
    (violation,) = validate("sums", wish(QUEUED, nodesPerSuperPodBlock=2), accelerators=RACKS_ONLY).violations
    assert violation.field == "spec.scheduling.topology.nodesPerSuperPodBlock"
    assert violation.message.startswith(f"{SUPER_POD} is not a topology level")


def test_labels_of_a_row_are_checked_when_the_table_is_read() -> None:
    with pytest.raises(TableError) as told:
        read_table(built_in_document(), {"cpu": {"superPodLabel": "super pod", "topologyLevels": ["a b"]}})
    assert [problem.field for problem in told.value.problems] == [
        "accelerators.cpu.superPodLabel[super pod]",
        "accelerators.cpu.topologyLevels[a b]",
    ]
