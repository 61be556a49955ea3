"""Faults of nodes: what is read from them, and what they mean for the jobs that hold their devices."""

import json
from datetime import timedelta
from typing import Any

import pytest
from builders import Json

from rljob.core import times
from rljob.core.scheduling.node_faults import (
    CLASSES,
    CODES_SHOWN,
    FAULTS_KEPT,
    DeviceFault,
    FaultEffect,
    Held,
    NodeFault,
    NodeLook,
    class_of,
    listed,
    node_faults,
    node_faults_of,
    read_held,
    read_node,
    read_public_faults,
)
from rljob.core.scheduling.worker_sizes import WorkerSizes

NPU = "huawei.com/Ascend910"
HERE = Held("n1", works=True, devices=frozenset({"Ascend910-0", "Ascend910-1"}))


def node(offered: int = 8, capacity: int = 8, **spec: object) -> Json:
    return {
        "metadata": {"name": "n1"},
        "spec": spec,
        "status": {"allocatable": {"cpu": "192", NPU: str(offered)}, "capacity": {NPU: str(capacity)}},
    }


def entry(device: str = "Ascend910-0", level: str = "SeparateNPU", codes: str = "80E01801") -> Json:
    return {"npu_name": device, "fault_handling": level, "fault_level": "NotHandleFault", "fault_code": codes}


def device_info(*faults: Json, lists: Json | None = None, **data: str) -> Json:
    devices = {f"{NPU}-Fault": json.dumps(faults), NPU: "Ascend910-7", **(lists or {})}
    return {"data": {"DeviceInfoCfg": json.dumps({"DeviceInfo": {"DeviceList": devices}}), **data}}


def look(
    manifest: Json, info: Json | None = None, machine: Json | None = None, public: tuple[DeviceFault, ...] = ()
) -> NodeLook:
    return read_node("n1", manifest, info, machine, public, [NPU, "huawei.com/npu"])


def found(seen: NodeLook, held: Held = HERE, count: int = 2) -> list[str]:
    return [str(node_fault) for node_fault in node_faults_of([held], {seen.name: seen}, NPU, WorkerSizes({"": count}))]


def test_a_node_that_is_well_has_no_troubles() -> None:
    assert look(node()) == NodeLook("n1", offered={NPU: 8}, capacity={NPU: 8})
    assert found(look(node(), device_info())) == []
    assert found(look({"metadata": {}})) == []


@pytest.mark.parametrize("key", ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"])
def test_a_node_that_is_not_ready_and_a_cordoned_one_are_faults(key: str) -> None:
    assert found(look(node(taints=[{"key": key, "effect": "NoExecute"}]))) == ["node n1: NodeNotReady"]
    assert found(look(node(unschedulable=True, taints=[{"key": "other"}]))) == ["node n1: NodeCordoned"]


def test_the_plug_ins_word_names_the_device_its_class_and_its_codes() -> None:
    seen = look(node(offered=7), device_info(entry()))
    assert found(seen) == ["Ascend910-0 of node n1: SeparateNPU (codes 80E01801)"]
    (long,) = found(look(node(), device_info(entry(codes="x" * 1000))))
    assert len(long) < CODES_SHOWN + 60


def test_a_fault_says_since_when_it_exists() -> None:
    levels = {"80E01801": {"fault_time": 1798000000500, "fault_level": "SeparateNPU"}, "other": {"fault_time": 0}}
    seen = look(node(), device_info(entry() | {"fault_time_and_level_map": levels}))
    assert found(seen) == ["Ascend910-0 of node n1: SeparateNPU (codes 80E01801 since 2026-12-23T04:26:40Z)"]


@pytest.mark.parametrize("time", [10**15, 2**63 - 1])
def test_a_fault_whose_time_no_calendar_has_counts_without_it(time: int) -> None:
    levels = {"80E01801": {"fault_time": time}}
    seen = look(node(), device_info(entry() | {"fault_time_and_level_map": levels}))
    assert found(seen) == ["Ascend910-0 of node n1: SeparateNPU (codes 80E01801)"]


def node_info(*parts: object) -> Json:
    status = {"FaultDevList": list(parts), "NodeStatus": "UnHealthy"}
    return {"data": {"NodeInfo": json.dumps({"NodeInfo": status, "CheckCode": "ab"})}}


def test_a_fault_of_the_machine_concerns_head_and_workers_whatever_devices_they_hold() -> None:
    disk = {
        "DeviceType": "Disk",
        "DeviceId": 3,
        "FaultCode": ["0000001D", "28"],
        "FaultLevel": "PreSeparateFault",
    }
    fan = {"DeviceType": "Fan", "DeviceId": 1, "FaultCode": ["0100000D"], "FaultLevel": "NotHandleFault"}
    seen = look(node(), device_info(), node_info(fan, disk))
    for held in (HERE, Held("n1", works=False)):
        assert found(seen, held) == ["node n1: PreSeparateFault (codes 0000001D,28 of Disk 3)"]
    for data in ({}, {"NodeInfo": "{"}, {"NodeInfo": '{"NodeInfo": {"FaultDevList": {}}}'}):
        assert look(node(), device_info(), {"data": data}).reported == ()


def test_public_faults_concern_the_devices_that_they_name() -> None:
    storage = {"faultCode": "010001001", "level": "SubHealthFault", "faultTime": 1798000000}
    npu = {"faultCode": "220001001", "level": "SeparateNPU", "devIds": [1, 5]}
    public = read_public_faults({"data": {"PublicFaults": json.dumps({"n1": [storage, npu], "n2": []})}})
    seen = look(node(), device_info(), public=public["n1"])
    on_node = "node n1: SubHealthFault (codes 010001001 since 2026-12-23T04:26:40Z)"
    assert found(seen) == ["Ascend910-1 of node n1: SeparateNPU (codes 220001001)", on_node]
    assert found(seen, Held("n1", works=False)) == [on_node]
    assert len(found(seen, Held("n1", works=True), count=8)) == 3
    assert read_public_faults({"data": {"PublicFaults": "["}}) == read_public_faults({}) == {}


@pytest.mark.parametrize("malformed", [{}, [], "text", {"FaultCode": 1, "faultTime": "now", "devIds": 1}])
def test_an_entry_in_another_format_does_not_hide_the_others(malformed: object) -> None:
    disk = {"FaultCode": ["28"], "FaultLevel": "SeparateFault", "DeviceType": "Disk", "DeviceId": 3}
    assert DeviceFault("", "SeparateFault", "28 of Disk 3") in look(node(), None, node_info(malformed, disk)).reported
    public = {"n0": malformed, "n1": [malformed, {"level": "SubHealthFault"}]}
    read = read_public_faults({"data": {"PublicFaults": json.dumps(public)}})
    assert DeviceFault("", "SubHealthFault") in read["n1"]


@pytest.mark.parametrize("level", CLASSES)
def test_every_class_is_read_as_itself(level: str) -> None:
    told = found(look(node(), device_info(entry(level=level, codes=""))))
    assert told == ([f"Ascend910-0 of node n1: {level}"] if CLASSES[level].effect > FaultEffect.NONE else [])


def test_an_unknown_class_counts_as_the_worst() -> None:
    seen = look(node(), device_info({**entry(level=""), "fault_level": "BrandNew"}))
    assert seen.faults == (DeviceFault("Ascend910-0", "UnknownFault", "80E01801"),)
    assert class_of("FromTheFuture").effect is FaultEffect.EXCLUDES


def test_faults_of_devices_that_the_job_does_not_hold_are_not_its_own() -> None:
    seen = look(node(offered=7), device_info(entry("Ascend910-5")))
    assert found(seen) == []
    assert found(seen, Held("n1", works=True), count=2) == [], "its devices are unknown"
    assert found(seen, Held("n1", works=True), count=8) != [], "it has them all"
    assert found(seen, Held("n1", works=False), count=8) == [], "the head has none"


def test_lists_without_levels_are_taken_where_there_is_no_level() -> None:
    lists = {f"{NPU}-Unhealthy": "Ascend910-0,Ascend910-1", f"{NPU}-NetworkUnhealthy": "Ascend910-1"}
    seen = look(node(offered=6), device_info(entry("Ascend910-0", "RestartNPU", ""), lists=lists))
    assert found(seen) == [
        "Ascend910-0 of node n1: RestartNPU",
        "Ascend910-1 of node n1: DeviceUnhealthy",
        "Ascend910-1 of node n1: NetworkUnhealthy",
    ]


def test_the_switch_of_a_super_pod_concerns_every_device() -> None:
    switch = {"FaultCode": ["0x1", "0x2"], "FaultLevel": "SubHealthFault", "NodeStatus": "SubHealthy"}
    assert found(look(node(), device_info(SwitchInfoCfg=json.dumps(switch)))) == [
        "node n1: SubHealthFault (codes 0x1,0x2)"
    ]
    switch = {"FaultCode": [], "FaultLevel": "NotHandle", "NodeStatus": "Healthy"}
    assert found(look(node(), device_info(SwitchInfoCfg=json.dumps(switch)))) == []


def test_a_device_that_somebody_separated_by_hand_is_at_fault() -> None:
    assert found(look(node(), device_info(ManuallySeparateNPU="Ascend910-1"))) == [
        "Ascend910-1 of node n1: ManuallySeparateNPU"
    ]


@pytest.mark.parametrize(
    "data",
    [
        {"DeviceInfoCfg": "no json"},
        {"DeviceInfoCfg": "[]"},
        {"DeviceInfoCfg": json.dumps({"DeviceInfo": {"DeviceList": {f"{NPU}-Fault": "{"}}})},
        {"DeviceInfoCfg": json.dumps({"DeviceInfo": {"DeviceList": {f"{NPU}-Fault": json.dumps(["x"])}}})},
    ],
)
def test_a_config_map_that_is_not_as_mindcluster_writes_it_is_as_if_it_were_not_there(data: Json) -> None:
    assert look(node(), {"data": data}).faults is None
    assert look(node(), {"data": {}}).faults == ()


def test_of_many_faults_the_worst_are_kept() -> None:
    many = [entry(f"Ascend910-{number}", "SubHealthFault") for number in range(100)]
    faults = look(node(), device_info(*many, entry("Ascend910-99", "SeparateNPU"))).faults
    assert faults is not None
    assert (len(faults), faults[0].name) == (FAULTS_KEPT, "SeparateNPU")


def test_the_kubelet_alone_says_how_many_and_of_a_pod_which() -> None:
    seen = look(node(offered=7))
    assert found(seen) == [], "the device may belong to another job"
    assert found(seen, count=8) == ["node n1: DeviceUnhealthy (1 of 8 devices)"]
    sick = Held("n1", works=True, sick=frozenset({"Ascend910-1"}))
    assert found(seen, sick) == ["Ascend910-1 of node n1: DeviceUnhealthy"]


def test_a_node_that_offers_no_device_at_all_has_lost_its_plug_in() -> None:
    assert found(look(node(offered=0)), count=8) == [
        "node n1: DevicesGone (none of 8 devices is allocatable; is the device plug-in running?)"
    ]
    assert found(look(node(offered=0, capacity=1)), count=1) == ["node n1: DeviceUnhealthy (1 of 1 devices)"]


def test_nothing_is_said_of_nodes_that_were_not_read() -> None:
    assert node_faults_of([HERE], {}, NPU, WorkerSizes({"": 2})) == ()


def test_the_worst_comes_first_and_a_message_names_only_some() -> None:
    node_faults = [NodeFault("n1", f"Ascend910-{number}", "RestartNPU") for number in range(6)]
    assert listed(node_faults).count(";") == 3
    assert listed(node_faults).endswith(" and 2 more")
    seen = look(node(unschedulable=True), device_info(entry("Ascend910-1", "SubHealthFault"), entry()))
    assert [text.rpartition(": ")[2] for text in found(seen)] == [
        "SeparateNPU (codes 80E01801)",
        "NodeCordoned",
        "SubHealthFault (codes 80E01801)",
    ]


def test_a_node_is_judged_whole_when_it_is_to_be_used_again() -> None:
    assert node_faults(look(node()), NPU) == ()
    assert [node_fault.name for node_fault in node_faults(look(node(offered=7)), NPU)] == ["DeviceUnhealthy"]
    assert [t.device for t in node_faults(look(node(), device_info(entry("Ascend910-5"))), NPU)] == ["Ascend910-5"]


MADE = times.from_text("2026-01-01T00:00:00Z")
PLACED = MADE + timedelta(seconds=5)
META: Json = {"creationTimestamp": times.to_text(MADE)}


def pod(kind: str, **fields: Any) -> Json:  # noqa: ANN401 - of a manifest
    made: Json = {"metadata": META | {"labels": {"ray.io/node-type": kind}}, "spec": {"nodeName": "n1"}}
    return {**made, **fields}


def test_what_a_job_holds_stands_in_its_pods() -> None:
    metadata = META | {
        "labels": {"ray.io/node-type": "worker", "ray.io/group": "generate"},
        "annotations": {"huawei.com/AscendReal": "Ascend910-0, Ascend910-1"},
    }
    health = [{"resourceID": "Ascend910-0", "health": "Healthy"}, {"resourceID": "Ascend910-1", "health": "Unhealthy"}]
    status = {
        "containerStatuses": [{"allocatedResourcesStatus": [{"name": NPU, "resources": health}]}, {}],
        "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": times.to_text(PLACED)}],
    }
    worker = pod("worker", metadata=metadata, status=status)
    waiting = pod("worker", spec={})
    assert read_held([pod("head"), worker, waiting]) == (
        Held("n1", works=False, since=MADE),
        Held("n1", works=True, devices=HERE.devices, sick=frozenset({"Ascend910-1"}), since=PLACED, group="generate"),
    )


def test_every_row_has_a_source() -> None:
    assert all(row.source for row in CLASSES.values())
    assert all((row.effect >= FaultEffect.RESTARTS) == (row.reason == "DeviceFault") for row in CLASSES.values())
