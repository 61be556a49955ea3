"""Whether the cluster has the hardware: what is reported, and when nothing can be reported."""

from fractions import Fraction

import pytest
from builders import Json, apart, group, merged, small_spec, typed

from rljob.core.scheduling.discovery import (
    NodeFacts,
    Nodes,
    devices_in_all,
    missing_hardware,
    node_facts,
    room_for,
    workers_in_all,
)
from rljob.core.scheduling.pod_room import Offer
from rljob.render.accelerator_table import AcceleratorTable, read_table
from rljob.render.accelerators import BUILT_IN, built_in_document

A3 = merged(small_spec(group({"nodes": 2, "devicesPerNode": 16})), {"accelerator": {"class": "atlas-a3"}})
SERVER = {"servertype": "Ascend910A3-24"}


def node(count: int = 16, resource: str = "huawei.com/Ascend910", labels: dict[str, str] | None = None) -> NodeFacts:
    return NodeFacts(labels or {}, {resource: count})


def hardware_problem(spec: Json, *nodes: NodeFacts, complete: bool = True, table: AcceleratorTable = BUILT_IN) -> str:
    found = missing_hardware(typed(spec, table), Nodes(nodes, complete))
    assert {violation.field for violation in found} <= {"spec.accelerator.class"}
    return "; ".join(violation.message for violation in found)


def test_a_cluster_with_the_hardware_has_no_violation() -> None:
    assert hardware_problem(A3, node(labels=SERVER), node(labels=SERVER), node(8)) == ""


def test_a_label_that_the_template_selects_by_counts_with_the_templates_value() -> None:
    spec = merged(A3, group({"nodes": 1, "devicesPerNode": 16, "template": {"nodeSelector": {"servertype": "own"}}}))
    assert hardware_problem(spec, node(labels={"servertype": "own"})) == ""
    assert "0 have its labels" in hardware_problem(spec, node(labels=SERVER))


@pytest.mark.parametrize("complete", [True, False])
def test_nothing_is_said_of_nodes_that_were_not_seen(complete: bool) -> None:
    assert hardware_problem(A3, complete=complete) == ""
    assert hardware_problem(A3, node(8), complete=False) == ""


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        (
            (node(8, labels={"servertype": "Ascend910B-20"}), node(8, labels={"servertype": "Ascend910B-20"})),
            (
                "of 2 nodes 0 have its labels (servertype Ascend910A3-20 or Ascend910A3-24) and 0 offer 16 "
                "huawei.com/Ascend910; there are nodes of class atlas-a2"
            ),
        ),
        ((node(16),), "0 have its labels (servertype Ascend910A3-20 or Ascend910A3-24) and 1 offer 16 huawei"),
        (
            (node(16),),
            "label the nodes, set this label in the template's nodeSelector, or change nodeLabels in the chart",
        ),
        (
            (node(16, "huawei.com/ascend-1980", {"accelerator/huawei-npu": "ascend-1980"}),),
            "there are nodes of class cce-a2, cce-a3",
        ),
        ((node(8, "huawei.com/Ascend910B3"),), "nodes offer huawei.com/Ascend910B3 (1 nodes); add a class for them"),
        ((NodeFacts({}, {}),), "no node offers any NPU; is the device plug-in running?"),
        ((node(15, labels=SERVER),), "1 have its labels"),
    ],
)
def test_a_class_without_nodes_is_reported_with_the_hardware_that_exists(
    nodes: tuple[NodeFacts, ...], words: str
) -> None:
    message = hardware_problem(A3, *nodes)
    assert message.startswith("no node of the cluster fits class atlas-a3")
    assert words in message


def test_nodes_of_super_pods_without_the_label_get_the_release_that_sets_it() -> None:
    spec = merged(A3, {"accelerator": {"class": "atlas-a3-superpod"}})
    nodes = [node(labels=SERVER)] * 2
    assert hardware_problem(spec, *nodes).endswith(
        "2 offer 16 huawei.com/Ascend910; none has huawei.com/topotree.superpodid, which MindCluster sets from 26.0 on "
        "in super-pods; there are nodes of class atlas-a3"
    )
    labelled = [node(labels=SERVER | {"huawei.com/topotree.superpodid": "0"})] * 2
    assert hardware_problem(spec, *labelled) == ""


def test_too_few_nodes_are_counted() -> None:
    assert hardware_problem(A3, node(labels=SERVER), node(8)) == (
        "1 nodes of class atlas-a3 offer 16 huawei.com/Ascend910, but the job needs 2"
    )


def test_a_class_without_labels_is_judged_by_its_devices() -> None:
    assert "of 1 nodes none offers 2 huawei.com/Ascend910" in hardware_problem(small_spec(), NodeFacts({}, {}))
    small = hardware_problem(small_spec(), NodeFacts({}, {"huawei.com/Ascend910": 1}))
    assert small.endswith("the largest offers 1; lower workerGroups[trainer].devicesPerNode")
    assert hardware_problem(small_spec(), node(2)) == ""


@pytest.mark.parametrize(
    ("version", "old"), [("25.2.3", True), ("25.5.0.rc1", False), ("25.5.0", False), ("26.0.rc1", False)]
)
def test_a_driver_that_is_too_old_is_reported(version: str, old: bool) -> None:
    nodes = [node(labels=SERVER | {"huawei.com/driver.version": version})] * 2
    strict = AcceleratorTable(read_table(built_in_document(), {"atlas-a3": {"minimum": {"driver": "25.5.0"}}}))
    message = hardware_problem(A3, *nodes, table=strict)
    assert message == (
        f"nodes with NPU drivers {version} (2 nodes) are older than 25.5.0, which class atlas-a3 requires"
        if old
        else ""
    )
    assert hardware_problem(A3, *nodes) == ""


def test_of_a_node_only_what_is_read_is_kept() -> None:
    manifest = {
        "metadata": {"name": "n", "labels": {"servertype": "Ascend910B-20", "team": "a"}},
        "spec": {"unschedulable": True},
        "status": {
            "allocatable": {"cpu": "192", "huawei.com/Ascend910": "7", "huawei.com/npu": "odd"},
            "capacity": {"huawei.com/Ascend910": "8"},
        },
    }
    assert node_facts(manifest, BUILT_IN) == NodeFacts(
        {"servertype": "Ascend910B-20"},
        {"huawei.com/Ascend910": 7},
        name="n",
        capacity={"huawei.com/Ascend910": 8},
        takes_pods=False,
        offer=Offer(cpu=Fraction(192)),
    )
    assert node_facts({"metadata": {}}, BUILT_IN) == NodeFacts({}, {})


def test_what_all_nodes_could_hold_is_counted_with_what_is_at_fault_just_now() -> None:
    whole = {"huawei.com/Ascend910": 16}
    own = NodeFacts({"servertype": "own"}, whole, capacity=whole)
    nodes = Nodes((NodeFacts(SERVER, {}, capacity=whole), NodeFacts(SERVER, whole, capacity=whole), own))
    assert workers_in_all(typed(A3), nodes) == 2
    halves = merged(A3, group({"nodes": 5, "devicesPerNode": 8}))
    assert workers_in_all(typed(halves), nodes) == 4
    chosen = merged(A3, group({"nodes": 2, "devicesPerNode": 16, "template": {"nodeSelector": {"servertype": "own"}}}))
    assert workers_in_all(typed(chosen), nodes) == 1
    assert devices_in_all(typed(chosen), nodes) == 32
    assert workers_in_all(typed(A3), Nodes(nodes.items, complete=False)) is None


PAIR = merged(A3, apart({"nodes": 2, "devicesPerNode": 16}, {"nodes": 1, "devicesPerNode": 8}))


def named(name: str, count: int = 16, capacity: int = 16, server: str = "Ascend910A3-24") -> NodeFacts:
    npu = "huawei.com/Ascend910"
    return NodeFacts({"servertype": server}, {npu: count}, name, {npu: capacity})


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ((node(labels=SERVER),) * 3, ""),
        ((node(labels=SERVER), node(labels=SERVER), node(8, labels=SERVER)), ""),
        (
            (node(labels=SERVER), node(8, labels=SERVER)),
            "1 nodes of class atlas-a3 offer 16 huawei.com/Ascend910, but group train needs 2",
        ),
        (
            (node(labels=SERVER), node(labels=SERVER)),
            (
                "2 nodes of class atlas-a3 have devices for 2 workers, but the job needs 2 of 16 devices and 1 of 8 "
                "devices"
            ),
        ),
        ((node(8),), "no node of the cluster fits class atlas-a3: of 1 nodes 0 have its labels"),
    ],
)
def test_both_groups_need_nodes_and_no_node_counts_twice(nodes: tuple[NodeFacts, ...], words: str) -> None:
    message = hardware_problem(PAIR, *nodes)
    assert message.startswith(words)
    assert bool(message) == bool(words)


def test_each_group_is_judged_by_its_own_nodes() -> None:
    own = merged(PAIR, apart({"nodes": 2, "devicesPerNode": 16}, {"template": {"nodeSelector": {"servertype": "own"}}}))
    assert hardware_problem(own, node(labels=SERVER), node(labels=SERVER), node(2, labels={"servertype": "own"})) == ""
    message = hardware_problem(own, *[node(labels=SERVER)] * 3)
    assert message.startswith("no node of the cluster fits class atlas-a3: of 3 nodes 0 have its labels")


def test_two_small_workers_share_a_node_that_has_devices_for_both() -> None:
    halves = merged(A3, apart({"devicesPerNode": 8}, {"devicesPerNode": 8}))
    assert hardware_problem(halves, node(labels=SERVER)) == ""
    assert "have devices for 1 workers" in hardware_problem(halves, node(15, labels=SERVER))
    on_host = merged(halves, {"network": {"mode": "Host"}})
    assert "have devices for 1 workers" in hardware_problem(on_host, node(labels=SERVER)), "they have the same ports"


def test_the_larger_workers_leave_the_other_group_what_only_it_fits() -> None:
    template = {"template": {"nodeSelector": {"servertype": "own"}}}
    spec = typed(merged(A3, apart({"nodes": 1, "devicesPerNode": 8}, {"nodes": 4, "devicesPerNode": 4} | template)))
    both = NodeFacts({"servertype": "own"}, {}, "b", {"huawei.com/Ascend910": 16})
    assert workers_in_all(spec, Nodes((both, named("a", capacity=8)))) == 5
    assert workers_in_all(spec, Nodes((both,))) == 4, "the nodes of the class lack a place for the trainer"


def test_the_room_of_a_job_is_that_of_all_its_groups() -> None:
    nodes = Nodes((named("n1"), named("n2", count=8), named("n3", capacity=8, count=8), named("n4", 4, 4)))
    room = room_for(typed(PAIR), nodes, ())
    assert room is not None
    assert (sorted(room.all), sorted(room.usable)) == (["n1", "n2", "n3"], ["n1", "n2", "n3"])
    assert (room.places, room.free) == (3, 2), "n2 has devices for the small worker only"
    avoided = room_for(typed(PAIR), nodes, ("n1",))
    assert avoided is not None
    assert (sorted(avoided.usable), avoided.places, avoided.free) == (["n2", "n3"], 3, 1)
