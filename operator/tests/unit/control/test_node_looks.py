"""Reading nodes by name: rarely, bounded, and without both permissions as if no nodes existed."""

from __future__ import annotations

import json

import pytest
from builders import Json
from doubles.clock import FrozenClock
from doubles.fake import Call, FakeCluster, fail_calls

from rljob.cluster.errors import ClusterError, Forbidden, Unavailable
from rljob.cluster.kinds import CONFIG_MAP, NODE
from rljob.control import node_looks
from rljob.control.node_looks import (
    FORBIDDEN_SECONDS,
    FRESH_SECONDS,
    KEEP_SECONDS,
    OVERDUE_SECONDS,
    STALE_SECONDS,
    NodeLooks,
)
from rljob.core.scheduling.discovery import device_resources
from rljob.core.scheduling.node_faults import NodeLook
from rljob.render.accelerators import BUILT_IN

NPU = "huawei.com/Ascend910"


class Site:
    """A cluster with nodes, and the requests for it."""

    def __init__(self, count: int = 2) -> None:
        self.cluster, self.clock = FakeCluster(), FrozenClock()
        self.asked: list[str] = []
        self.cluster.gate = self._note
        self.looks = NodeLooks(
            self.cluster, self.clock.monotonic, "kube-system", "mindx-dl", "cluster-system", device_resources(BUILT_IN)
        )
        for number in range(count):
            self.cluster.put(node(f"n{number}"))

    async def _note(self, call: Call) -> None:
        self.asked.append(f"{call.verb} {call.kind.kind} {call.name}")

    def fail(self, kind: object, error: ClusterError, times: int = 1) -> None:
        self.cluster.faults.append(fail_calls("get", NODE if kind == NODE else CONFIG_MAP, error, times=times))


def node(name: str, offered: int = 8) -> Json:
    status = {"allocatable": {NPU: str(offered)}, "capacity": {NPU: "8"}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": {}, "status": status}


def device_info(name: str) -> Json:
    metadata = {"namespace": "kube-system", "name": f"mindx-dl-deviceinfo-{name}"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"ManuallySeparateNPU": "npu-1"}}


def node_info(name: str) -> Json:
    metadata = {"namespace": "mindx-dl", "name": f"mindx-dl-nodeinfo-{name}"}
    faults = [{"DeviceType": "CPU", "DeviceId": 0, "FaultCode": ["2C000031"], "FaultLevel": "SeparateFault"}]
    data = {"NodeInfo": json.dumps({"NodeInfo": {"FaultDevList": faults}})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def public_faults(name: str) -> Json:
    metadata = {"namespace": "cluster-system", "name": "statistic-fault-info"}
    data = {"PublicFaults": json.dumps({name: [{"level": "SubHealthFault", "faultCode": "010001001"}]})}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


PUBLIC = "get ConfigMap statistic-fault-info"
READ = ("Node ", "ConfigMap mindx-dl-deviceinfo-", "ConfigMap mindx-dl-nodeinfo-")
"""What is read of each node."""


def well(name: str) -> NodeLook:
    return NodeLook(name, offered={NPU: 8}, capacity={NPU: 8})


@pytest.fixture
def site() -> Site:
    return Site()


async def test_a_slow_api_server_is_asked_less_except_when_a_run_has_ended(site: Site) -> None:
    async def slow(call: Call) -> None:
        site.asked.append(call.name)
        site.clock.advance(2)

    site.cluster.gate = slow
    assert list(await site.looks.look(["n0"])) == ["n0"]
    assert await site.looks.look(["n1"]) == {}
    site.asked.clear()
    assert list(await site.looks.look(["n1"], fresh=True)) == ["n1"]
    assert "n1" in site.asked
    site.clock.advance(OVERDUE_SECONDS)
    for _ in range(2):
        await site.looks.look(["n1"], fresh=True)
    site.asked.clear()
    assert sorted(await site.looks.look(["n0", "n2"])) == ["n0"]
    assert "n0" in site.asked, "before what is known of it is discarded"
    assert "n2" not in site.asked, "the time is used up"


async def test_a_node_is_read_by_name_and_so_is_what_its_plug_in_says(site: Site) -> None:
    site.cluster.put(device_info("n1"))
    site.cluster.put(node_info("n1"))
    site.cluster.put(public_faults("n0"))
    found = await site.looks.look(["n1", "n0", "n1"])
    assert sorted(site.asked) == sorted([PUBLIC, *(f"get {kind}{name}" for name in ("n0", "n1") for kind in READ)])
    assert [fault.name for fault in found["n0"].reported] == ["SubHealthFault"]
    assert [fault.name for fault in found["n1"].faults or ()] == ["ManuallySeparateNPU"]
    assert [fault.name for fault in found["n1"].reported] == ["SeparateFault"]


async def test_all_jobs_share_a_look_for_half_a_minute(site: Site) -> None:
    await site.looks.look(["n0"])
    site.clock.advance(KEEP_SECONDS - 1)
    await site.looks.look(["n0"])
    assert len(site.asked) == 1 + len(READ)
    site.clock.advance(1)
    await site.looks.look(["n0"])
    assert len(site.asked) == 2 * (1 + len(READ))


async def test_when_a_run_has_ended_it_is_looked_anew(site: Site) -> None:
    await site.looks.look(["n0"])
    site.clock.advance(FRESH_SECONDS)
    await site.looks.look(["n0"], fresh=True)
    assert len(site.asked) == 2 * (1 + len(READ))


async def test_without_a_namespace_for_them_config_maps_are_not_read(site: Site) -> None:
    site.looks.device_info_namespace = site.looks.node_info_namespace = site.looks.public_faults_namespace = ""
    await site.looks.look(["n0"])
    assert site.asked == ["get Node n0"]


async def test_of_a_node_that_is_gone_nothing_is_known(site: Site) -> None:
    await site.looks.look(["n0"])
    site.cluster.remove(NODE, "", "n0")
    site.clock.advance(KEEP_SECONDS)
    assert await site.looks.look(["n0"]) == {}


async def test_what_cannot_be_read_is_as_it_was_and_after_a_while_unknown(site: Site) -> None:
    await site.looks.look(["n0"])
    site.fail(NODE, Unavailable("down"), times=99)
    site.clock.advance(STALE_SECONDS - 1)
    assert await site.looks.look(["n0"]) == {"n0": well("n0")}
    site.clock.advance(1)
    assert await site.looks.look(["n0"]) == {}


async def test_public_faults_that_cannot_be_read_remain_for_a_while(site: Site) -> None:
    site.looks.device_info_namespace = site.looks.node_info_namespace = ""
    site.cluster.put(public_faults("n0"))
    await site.looks.look(["n0"])
    site.fail(CONFIG_MAP, Unavailable("down"), times=99)
    for seconds, known in ((STALE_SECONDS - 1, ["SubHealthFault"]), (KEEP_SECONDS, [])):
        site.clock.advance(seconds)
        assert [fault.name for fault in (await site.looks.look(["n0"]))["n0"].reported] == known


async def test_a_missing_right_is_logged_once_and_tried_again_later(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    site.fail(NODE, Forbidden("no"), times=2)
    for _ in range(3):
        assert await site.looks.look(["n0"]) == {}
    site.clock.advance(FORBIDDEN_SECONDS)
    assert await site.looks.look(["n0"]) == {}
    assert site.asked == ["get Node n0"] * 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    site.clock.advance(FORBIDDEN_SECONDS)
    assert await site.looks.look(["n0"]) == {"n0": well("n0")}


async def test_nodes_are_seen_without_the_right_to_read_config_maps(site: Site) -> None:
    site.cluster.put(device_info("n0"))
    site.fail(CONFIG_MAP, Forbidden("no"))
    assert await site.looks.look(["n0"]) == {"n0": well("n0")}
    site.clock.advance(KEEP_SECONDS)
    await site.looks.look(["n0"])
    # The right to read those of another namespace is another one.
    again = ["get Node n0", "get ConfigMap mindx-dl-nodeinfo-n0", PUBLIC]
    assert site.asked == [*(f"get {kind}n0" for kind in READ), PUBLIC, *again]


async def test_a_fault_is_not_gone_because_its_config_map_could_not_be_read(site: Site) -> None:
    site.cluster.put(device_info("n0"))
    before = await site.looks.look(["n0"])
    site.fail(CONFIG_MAP, Unavailable("down"), times=99)
    site.clock.advance(KEEP_SECONDS)
    assert await site.looks.look(["n0"]) == before
    assert [fault.name for fault in before["n0"].faults or ()] == ["ManuallySeparateNPU"]
    site.clock.advance(STALE_SECONDS - KEEP_SECONDS)
    assert await site.looks.look(["n0"]) == {}


async def test_many_nodes_are_looked_at_one_after_another() -> None:
    site = Site(100)
    names = [f"n{number}" for number in range(100)]
    assert len(await site.looks.look(names)) == node_looks.LOOKS_AT_ONCE
    seconds = node_looks.LOOKS_AT_ONCE / node_looks.LOOKS_PER_SECOND
    site.clock.advance(seconds)
    assert len(await site.looks.look(names)) == 2 * node_looks.LOOKS_AT_ONCE
    site.clock.advance(STALE_SECONDS - seconds - 1)
    assert len(await site.looks.look(names)) == 100, "nodes that were read are still known"


async def test_nodes_that_nobody_asks_for_any_more_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    site = Site(3)
    monkeypatch.setattr(node_looks, "NODES_KEPT", 2)
    await site.looks.look(["n0", "n1"])
    site.clock.advance(STALE_SECONDS)
    await site.looks.look(["n2"])
    assert list(site.looks._seen) == ["n2"]
