"""Injected defects of nodes and their diagnoses; a healthy cluster has no findings."""

from __future__ import annotations

import dataclasses
import platform
import socket
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from rljob_runtime.contract import ExitCode, MinimumVersion, Outcome, Phase, Platform, Progress
from rljob_runtime.node import ascend_tools
from rljob_runtime.node.ascend_tools import Device, ToolBusyError
from rljob_runtime.node_checks import evaluate, preflight, report
from rljob_runtime.node_checks import gather as gathering
from rljob_runtime.node_checks.evaluate import Check, Window
from rljob_runtime.node_checks.gather import busy_ports, cann_version
from rljob_runtime.node_checks.versions import minimums, older
from rljob_runtime.outcomes import RefusedError, from_error
from rljob_runtime.spool.spool import Spool
from runtime.tests.conftest import MakeJob
from runtime.tests.fake_ascend import A3
from runtime.tests.fake_cluster import GIB, Cluster, Node, make_cluster

SICK = "node-2"
CONFIGURATION, PLACE = ExitCode.BAD_CONFIG, ExitCode.ENVIRONMENT


@pytest.fixture
def cluster(tmp_path: Path, make_job: MakeJob) -> Cluster:
    return make_cluster(tmp_path, make_job)


def sick(cluster: Cluster) -> Node:
    return next(node for node in cluster.nodes if node.name == SICK)


def host(**changes: object) -> Callable[[Cluster], None]:
    """Change what the tools of the faulty node report."""

    def spoil(cluster: Cluster) -> None:
        sick(cluster).host = sick(cluster).host.with_(**changes)

    return spoil


def node(**changes: object) -> Callable[[Cluster], None]:
    """Change the faulty node."""

    def spoil(cluster: Cluster) -> None:
        for name, value in changes.items():
            setattr(sick(cluster), name, value)

    return spoil


def everywhere(**changes: object) -> Callable[[Cluster], None]:
    """Change every node, including the head."""

    def spoil(cluster: Cluster) -> None:
        for one in (cluster.head, *cluster.nodes):
            for name, value in changes.items():
                setattr(one, name, value)

    return spoil


def environ(name: str, value: str) -> Callable[[Cluster], None]:
    def spoil(cluster: Cluster) -> None:
        sick(cluster).environ[name] = value

    return spoil


def drop_shard(folder: Path) -> None:
    (folder / "model-00002-of-00002.safetensors").unlink()


def cut_shard(folder: Path) -> None:
    shard = folder / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:-7])


def model(change: Callable[[Path], None], *, all_nodes: bool) -> Callable[[Cluster], None]:
    def spoil(cluster: Cluster) -> None:
        for one in [cluster.head, *cluster.nodes] if all_nodes else [sick(cluster)]:
            change(one.root / "model")

    return spoil


def two_with_one_address(cluster: Cluster) -> None:
    """Give the same address to devices of two nodes."""
    sick(cluster).host = sick(cluster).host.with_(addresses={3: "29.1.1.10"})


def driver_below_the_class(cluster: Cluster) -> None:
    needs = dataclasses.replace(cluster.job.needs, versions=(MinimumVersion("driver", "25.2.0"),))
    cluster.job = dataclasses.replace(cluster.job, needs=needs)
    sick(cluster).host = sick(cluster).host.with_(version="24.1.rc3")


def no_reward(cluster: Cluster) -> None:
    for one in (cluster.head, *cluster.nodes):
        (one.root / "reward.py").unlink()


def a_reward_that_one_node_lacks(cluster: Cluster) -> None:
    (sick(cluster).root / "reward.py").unlink()


@dataclasses.dataclass(frozen=True)
class Defect:
    """A defect, and the launcher's diagnosis."""

    spoil: Callable[[Cluster], None]
    reason: str
    code: ExitCode
    says: str
    """Part of the message."""
    nodes: tuple[str, ...] = (SICK,)


DEFECTS = {
    "a device has dropped off the bus": Defect(
        host(lost=frozenset({5})), "DevicesMissing", PLACE, "node-2, NPU 5: npu-smi lists 7 of 8 devices; missing: 5"
    ),
    "a device is in alarm": Defect(
        host(unhealthy={3: "Alarm"}), "DeviceUnhealthy", PLACE, "node-2, NPU 3: health is Alarm (card 3, chip 0"
    ),
    "a device is critical": Defect(
        host(unhealthy={0: "Critical"}), "DeviceUnhealthy", PLACE, "node-2, NPU 0: health is Critical"
    ),
    "the driver's tools are not mounted on one node": Defect(
        node(tools=()), "DriverNotMounted", PLACE, "node-2: npu-smi is not in this container"
    ),
    "the driver's tools are mounted nowhere": Defect(
        everywhere(tools=()), "DriverNotMounted", CONFIGURATION, "on every node: npu-smi is not in this container", ()
    ),
    "the node has another accelerator": Defect(
        host(name="310P3"), "WrongChip", PLACE, "node-2, NPU 0: 310P3 is not a device of this accelerator"
    ),
    "the driver hangs": Defect(
        node(answers={"npu-smi info": "failed: dcmi model initialized\n"}), "DriverSilent", PLACE, "node-2: `npu-smi"
    ),
    "the driver is older than the class allows": Defect(
        driver_below_the_class, "DriverTooOld", PLACE, "node-2: driver 24.1.rc3 is older than 25.2.0, which the acc"
    ),
    "the firmware is too old": Defect(
        host(firmware="7.3.0.1.231"), "DriverTooOld", PLACE, "node-2: firmware 7.3.0.1.231 is older than 7.5.0.1.129"
    ),
    "the image's CANN does not fit its torch_npu": Defect(
        everywhere(cann="8.5.0"), "ImageMismatch", CONFIGURATION, "cann 8.5.0 is older than 9.1.0, which torch_npu", ()
    ),
    "a device's link is down": Defect(
        host(down=frozenset({6})), "LinkDown", PLACE, "node-2, NPU 6: its network port is DOWN (hccn_tool -i 6"
    ),
    "a device has no address": Defect(
        host(addresses={2: None}), "DeviceAddress", PLACE, "node-2, NPU 2: its network port has no address"
    ),
    "two devices have one address": Defect(
        two_with_one_address, "DeviceAddress", PLACE, "its network port has the address 29.1.1.10, as do",
        ("node-1", SICK),
    ),
    "a named interface is missing": Defect(
        environ("GLOO_SOCKET_IFNAME", "bond0"), "InterfaceMissing", PLACE, "node-2: GLOO_SOCKET_IFNAME=bond0: int"
    ),
    "/dev/shm is the runtime's default on one node": Defect(
        node(shared_memory=64 << 20), "SharedMemoryTooSmall", PLACE, "node-2: shared memory has 0.1 GiB"
    ),
    "/dev/shm is too small everywhere": Defect(
        everywhere(shared_memory=32 * GIB), "SharedMemoryTooSmall", CONFIGURATION, "32.0 GiB, but workerGroups[]", ()
    ),
    "few open files are allowed": Defect(node(open_files=1024), "OpenFilesTooFew", PLACE, "process may open 1024"),
    "the disk is full": Defect(node(free=100 << 20), "DiskFull", PLACE, "node-2: 0.1 GiB are free"),
    "the clock is two minutes ahead": Defect(node(clock=120.0), "ClockSkew", PLACE, "node-2: its clock differs by 119"),
    "the clock is an hour behind": Defect(node(clock=-3600.0), "ClockSkew", PLACE, "node-2: its clock differs by 3600"),
    "the checkpoint folder is not shared": Defect(
        node(unshared="another run's"), "FolderNotShared", PLACE, "another volume is mounted here"
    ),
    "a path is missing everywhere": Defect(no_reward, "PathMissing", CONFIGURATION, "does not exist in any pod", ()),
    "a path is missing on one node": Defect(
        a_reward_that_one_node_lacks, "PathMissing", PLACE, "node-2: reward.path: reward.py is missing here"
    ),
    "a shard of the model is missing": Defect(
        model(drop_shard, all_nodes=True), "ModelIncomplete", CONFIGURATION, "model-00002-of-00002.safetensors", ()
    ),
    "a shard of the model is cut off": Defect(
        model(cut_shard, all_nodes=True), "ModelIncomplete", CONFIGURATION, "2.safetensors has 80 of 87 bytes", ()
    ),
    "one node has another copy of the model": Defect(
        model(cut_shard, all_nodes=False), "ModelIncomplete", PLACE, "bytes here and"
    ),
    "the cpuset is smaller than the pod asked for": Defect(
        node(cpus=frozenset(range(64))), "CpusetTooSmall", PLACE, "node-2: the cpuset has 64 CPUs"
    ),
    "a node does not answer": Defect(node(silent=True), "NodeSilent", PLACE, "node-2: did not answer the check"),
}  # fmt: skip


def test_there_are_twenty_defects_and_more() -> None:
    assert len(DEFECTS) >= 20


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_diagnosed(name: str, cluster: Cluster) -> None:
    defect = DEFECTS[name]
    defect.spoil(cluster)
    facts, findings = cluster.ask()
    with pytest.raises(RefusedError) as caught:
        evaluate.refuse(cluster.job, facts, findings)
    assert (caught.value.reason, caught.value.code) == (defect.reason, defect.code)
    assert defect.says in str(caught.value)
    assert set(caught.value.nodes) == set(defect.nodes)
    # Only the defect itself is reported.
    assert {found.check.reason for found in findings if found.fatal} == {defect.reason}


def test_a_healthy_cluster_is_not_blamed(cluster: Cluster) -> None:
    facts, findings = cluster.ask()
    evaluate.refuse(cluster.job, facts, findings)
    assert findings == []


def test_a_healthy_a3_superpod_is_not_blamed(cluster: Cluster) -> None:
    cluster.job = dataclasses.replace(
        cluster.job, devices=48, dies_per_card=2, needs=dataclasses.replace(cluster.job.needs, chips=("Ascend910",))
    )
    for index, one in enumerate(cluster.nodes):
        # Dies of a SuperPoD need no addresses.
        one.host = A3.with_(network=f"29.2.{index}", addresses=dict.fromkeys(range(16)))
    facts, findings = cluster.ask()
    assert [found for found in findings if found.fatal] == []
    evaluate.refuse(cluster.job, facts, findings)


def test_a_superpod_needs_no_ports_of_its_own(cluster: Cluster) -> None:
    cluster.job = dataclasses.replace(
        cluster.job, devices=48, dies_per_card=2, needs=dataclasses.replace(cluster.job.needs, chips=("Ascend910",))
    )
    for one in cluster.nodes:
        # All ports are down, and every node has the factory addresses.
        one.host = A3.with_(down=frozenset(range(16)))
    facts, findings = cluster.ask()
    evaluate.refuse(cluster.job, facts, findings)
    assert {found.check for found in findings} == {Check.LINKS, Check.ADDRESSES}


@pytest.mark.parametrize("what", ["-link", "-ip"])
@pytest.mark.parametrize(
    "said", ["hccn_tool is busy, please try again.\n", "Cmd execute failed!\n", "another layout\n"]
)
def test_what_a_port_does_not_report_ends_nothing_and_names_the_device(cluster: Cluster, what: str, said: str) -> None:
    host(said={f"-i 4 {what} -g": said})(cluster)
    facts, findings = cluster.ask()
    evaluate.refuse(cluster.job, facts, findings)
    assert [(found.check, found.node, found.device, found.fatal) for found in findings] == [
        (Check.LINKS, SICK, 4, False)
    ]
    (asked,) = [one for one in facts if one.node == SICK]
    assert None not in asked.addresses.values()


def test_a_tool_that_was_busy_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str | ToolBusyError] = [ToolBusyError("busy"), ToolBusyError("busy"), "link status: UP\n"]

    def run(*_: str, seconds: float) -> str:
        assert 0 < seconds <= gathering.LINK_SECONDS
        if isinstance(now := said.pop(0), ToolBusyError):
            raise now
        return now

    monkeypatch.setattr(ascend_tools, "run_tool", run)
    monkeypatch.setattr(gathering, "BUSY_SECONDS", 0.0)
    assert gathering._ask_hccn(3, "-link", time.monotonic() + 60) == "link status: UP\n"
    assert said == []


def test_ports_are_not_asked_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathering, "LINKS_SECONDS", 0.0)
    ports = gathering._ask_ports((Device(0, 0, 0, "910B3", "OK", "0000:c1:00.0"),))
    assert (ports.links, ports.addresses, list(ports.unasked)) == ({}, {}, [0])
    assert "was not run: earlier queries took 0 s" in ports.unasked[0]


def test_a_driver_older_than_the_table_is_a_warning(cluster: Cluster) -> None:
    everywhere(host=sick(cluster).host.with_(version="25.2.0", addresses=dict.fromkeys(range(8), None)))(cluster)
    cluster.job = dataclasses.replace(cluster.job, nodes=1, devices=8)
    facts, findings = cluster.ask()
    evaluate.refuse(cluster.job, facts, findings)
    assert {found.fatal for found in findings} == {False}
    assert [found.node for found in findings if found.check is Check.VERSIONS] == ["node-1", "node-2", "node-3"]


def test_an_interface_that_only_the_head_lacks_stops_nothing(cluster: Cluster) -> None:
    cluster.head.environ["GLOO_SOCKET_IFNAME"] = "bond0"
    facts, findings = cluster.ask()
    evaluate.refuse(cluster.job, facts, findings)
    assert [(found.check, found.node, found.fatal) for found in findings] == [(Check.INTERFACE, "head", False)]


def test_a_driver_that_fails_on_the_only_node_is_the_nodes_fault(cluster: Cluster) -> None:
    cluster.job, cluster.nodes = dataclasses.replace(cluster.job, nodes=1, devices=8), [sick(cluster)]
    node(answers={"npu-smi info": "failed: dcmi model initialized\n"})(cluster)
    facts, findings = cluster.ask()
    with pytest.raises(RefusedError) as caught:
        evaluate.refuse(cluster.job, facts, findings)
    assert (caught.value.reason, caught.value.code, caught.value.nodes) == ("DriverSilent", PLACE, (SICK,))


def test_ports_in_use_are_named() -> None:
    with ExitStack() as stack:
        sock = stack.enter_context(socket.socket())
        sock.bind(("", 0))
        sock.listen()
        port = sock.getsockname()[1]
        assert busy_ports({"HCCL_HOST_SOCKET_PORT_RANGE": f"{port}-{port}"}) == (port,)
        assert port in busy_ports({"HCCL_IF_BASE_PORT": str(port)})
        assert busy_ports({"HCCL_IF_BASE_PORT": str(port), "HCCL_HOST_SOCKET_PORT_RANGE": "auto"}) == ()


def test_a_taken_port_of_a_host_network_ends_the_run(cluster: Cluster) -> None:
    with socket.socket() as sock:
        sock.bind(("", 0))
        sock.listen()
        port = sock.getsockname()[1]
        sick(cluster).environ["HCCL_HOST_SOCKET_PORT_RANGE"] = f"{port}-{port}"
        facts, findings = cluster.ask()
    with pytest.raises(RefusedError, match=f"node-2: HCCL port {port} is in use") as caught:
        evaluate.refuse(cluster.job, facts, findings)
    assert (caught.value.reason, caught.value.nodes) == ("PortsBusy", (SICK,))


def test_a_device_that_only_warns_stops_nothing(cluster: Cluster) -> None:
    host(unhealthy={1: "Warning"})(cluster)
    facts, findings = cluster.ask()
    evaluate.refuse(cluster.job, facts, findings)
    assert [(found.check, found.node, found.device) for found in findings] == [(Check.HEALTH, SICK, 1)]


def test_unneeded_links_stop_nothing(cluster: Cluster) -> None:
    cluster.job, cluster.nodes = dataclasses.replace(cluster.job, nodes=1, devices=8), [sick(cluster)]
    host(down=frozenset({1}), addresses={1: None})(cluster)
    facts, findings = cluster.ask()
    evaluate.refuse(cluster.job, facts, findings)
    assert {found.check for found in findings} == {Check.LINKS, Check.ADDRESSES}


def test_tools_of_the_links_that_are_not_mounted_are_reported(cluster: Cluster) -> None:
    everywhere(tools=("npu-smi",))(cluster)
    facts, findings = cluster.ask()
    evaluate.refuse(cluster.job, facts, findings)
    assert {(found.check, found.fatal) for found in findings} == {(Check.LINKS, False)}


def test_without_npus_small_resources_are_only_reported(cluster: Cluster) -> None:
    cluster.job = dataclasses.replace(cluster.job, platform=Platform.CPU)
    everywhere(open_files=1024, cpus=frozenset(range(2)))(cluster)
    facts, findings = cluster.ask()
    evaluate.refuse(cluster.job, facts, findings)
    assert {found.check for found in findings} == {Check.OPEN_FILES, Check.CPUS}
    table = report.preflight(cluster.job, facts, findings, 1.0)
    assert "devices" not in [row.check for row in table.checks]


def test_several_nodes_are_named_the_worst_first(cluster: Cluster) -> None:
    host(unhealthy={1: "Alarm", 2: "Alarm"})(cluster)
    cluster.nodes[0].host = cluster.nodes[0].host.with_(lost=frozenset({7}))
    facts, findings = cluster.ask()
    with pytest.raises(RefusedError) as caught:
        evaluate.refuse(cluster.job, facts, findings)
    assert caught.value.nodes == (SICK, "node-1")


def test_the_nodes_are_in_the_last_line(cluster: Cluster) -> None:
    host(down=frozenset({6}))(cluster)
    facts, findings = cluster.ask()
    with pytest.raises(RefusedError) as caught:
        evaluate.refuse(cluster.job, facts, findings)
    outcome = from_error(caught.value)
    assert Outcome.from_json(outcome.to_json()).nodes == (SICK,)
    assert (outcome.exit_code, outcome.reason) == (65, "LinkDown")


def test_the_table_is_in_the_log_and_in_progress(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spool = Spool(tmp_path / "spool")
    spool.write_progress(Progress(pod_uid="pod-1", phase=Phase.STARTING))
    host(down=frozenset({6}))(cluster)
    facts, _ = cluster.ask()
    with pytest.raises(RefusedError):
        preflight.conclude(cluster.job, spool, facts, Window(facts[0].time, facts[0].time + 1), [], 4.2)
    log = capsys.readouterr().err
    assert "rljob: 4 nodes checked in 4.2 s" in log
    assert "devices              4    -    -  8 910B3" in log
    assert "FAILED: device links: node-2, NPU 6: its network port is DOWN" in log
    progress = spool.progress()
    assert progress is not None
    assert progress.preflight is not None
    row = next(row for row in progress.preflight.checks if row.check == "device links")
    assert (row.passed, row.failed) == (3, 1)
    assert progress.preflight.findings[0].device == 6


def test_the_table_of_a_thousand_sick_nodes_fits_into_an_answer(make_job: MakeJob) -> None:
    job = make_job(platform=Platform.NPU, nodes=1000, devices=16000)
    silent = [evaluate.Unresponsive(f"a-node-with-a-long-name-{index}") for index in range(1000)]
    findings = evaluate.evaluate(job, [], Window(0, 1), silent)
    table = report.preflight(job, [], findings, 60.0)
    assert len(Progress(pod_uid="p", phase=Phase.STARTING, preflight=table).to_json()) < 32 * 1024


@pytest.mark.parametrize(
    ("version", "minimum", "expected"),
    [
        ("25.3.rc1.2", "25.3.rc1", False),
        ("25.2.0", "25.3.rc1", True),
        ("25.3.rc1", "25.3.0", True),
        ("25.3.0", "25.3", False),
        ("8.3.RC1", "8.5.0", True),
        ("2.10.0.post4", "2.10.0", False),
        ("26.0.0", "25.5.0", False),
        ("25.10.0", "25.9.0", False),
    ],
)
def test_releases_are_compared_as_their_makers_count(version: str, minimum: str, expected: bool) -> None:
    assert older(version, minimum) is expected


@pytest.mark.parametrize(
    ("torch_npu", "cann", "least", "driver"),
    [
        ("2.9.0", "8.5.0", "8.5.0", "25.3.rc1"),
        ("2.9.0.post2", "8.5.1", "8.5.1", "25.3.rc1"),
        ("2.10.0", "9.0.0", "9.0.0", "25.5.0"),
        ("2.10.0.post1", "9.0.0", "9.0.0", "25.5.0"),
        ("2.10.0.post3", "9.0.1", "9.0.1", "25.5.0"),
        ("2.10.0.post4", "9.1.0", "9.1.0", "26.0.rc1"),
        ("2.10.0.post10", "9.1.0", "9.1.0", "26.0.rc1"),
    ],
)
def test_the_table_of_releases_follows_what_is_installed(torch_npu: str, cann: str, least: str, driver: str) -> None:
    wanted = minimums({"torch_npu": torch_npu, "cann": cann})
    assert {part: version for part, (version, _) in wanted.items()} == {"cann": least, "driver": driver}


def test_the_release_of_cann_is_read_where_its_installer_writes_it(tmp_path: Path) -> None:
    arch = {"arm64": "aarch64"}.get(platform.machine(), platform.machine())
    file = tmp_path / f"ascend-toolkit/latest/{arch}-linux/ascend_toolkit_install.info"
    assert cann_version({}, str(tmp_path)) is None
    file.parent.mkdir(parents=True)
    file.write_text("package_name=Ascend-cann-toolkit\nversion=9.1.0\ninnerversion=V100R001C25\n")
    assert cann_version({}, str(tmp_path)) == "9.1.0"
