"""Parsing of the output of npu-smi and hccn_tool."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rljob_runtime.node import ascend_tools
from rljob_runtime.node.ascend_tools import (
    ToolError,
    ToolMissingError,
    parse_address,
    parse_board,
    parse_devices,
    parse_link,
    parse_mapping,
    parse_tool_version,
    parse_topology,
)
from rljob_runtime.node.topology import near_by_bus, read_topology, usable_cpus
from runtime.tests.fake_ascend import A2, A3, X86_NEAR, ranges


def test_a2_shows_a_device_a_card() -> None:
    devices = parse_devices(A2.info(), parse_mapping(A2.mapping()))
    assert [device.logical for device in devices] == list(range(8))
    first = devices[0]
    assert (first.card, first.chip, first.name, first.health) == (0, 0, "910B3", "OK")
    assert (first.bus, first.hbm_mebibytes) == ("0000:c1:00.0", 65536)


def test_a3_shows_two_devices_a_card() -> None:
    devices = parse_devices(A3.info(), parse_mapping(A3.mapping()))
    assert [(d.logical, d.card, d.chip) for d in devices] == [(die, die // 2, die % 2) for die in range(16)]


def test_a_chip_that_computes_nothing_is_no_device() -> None:
    assert len(parse_mapping(A2.mapping())) == 8


def test_a_lost_device_leaves_the_ids_of_the_others() -> None:
    host = A2.with_(lost=frozenset({3}))
    devices = parse_devices(host.info(), parse_mapping(host.mapping()))
    assert [device.logical for device in devices] == [0, 1, 2, 4, 5, 6, 7]


def test_without_a_mapping_devices_are_counted_as_they_come() -> None:
    assert [device.logical for device in parse_devices(A3.info(), {})] == list(range(16))


def test_affinities_are_by_card_on_a2_and_by_die_on_a3() -> None:
    two = parse_topology(A2.topology(), parse_devices(A2.info(), {}))
    three = parse_topology(A3.topology(), parse_devices(A3.info(), {}))
    assert two[0] == two[1] == ranges((144, 167))
    assert two[7] == ranges((48, 71))
    assert three == {die: ranges((0, 639)) for die in range(16)}


def test_affinities_of_several_ranges_are_read() -> None:
    host = A2.with_(near=X86_NEAR)
    assert parse_topology(host.topology(), parse_devices(host.info(), {}))[4] == ranges((48, 95), (144, 191))


def test_a_topology_without_affinities_says_nothing() -> None:
    host = A2.with_(near=())
    assert parse_topology(host.topology(), parse_devices(host.info(), {})) == {}


def test_releases_are_read() -> None:
    assert parse_tool_version(A2.info()) == "26.0.rc1"
    assert parse_board(A2.board()) == {"driver": "26.0.rc1", "firmware": "7.7.0.6.236"}


def test_links_and_addresses_are_read() -> None:
    assert parse_link("link status: DOWN\n") == "DOWN"
    assert parse_address("ipaddr:29.1.112.213\nnetmask:255.255.0.0\n") == "29.1.112.213"
    assert (parse_link(""), parse_address("no ip")) == (None, None)


def test_a_tool_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ToolMissingError, match="npu-smi is not in this container"):
        ascend_tools.run_tool("npu-smi", "info")


def test_a_tool_that_fails_says_what_it_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", f"{A2.install(tmp_path)}:/usr/bin:/bin")
    with pytest.raises(ToolError, match="npu-smi info -i 99` failed with exit code 1: npu-smi: no such option"):
        ascend_tools.run_tool("npu-smi", "info", "-i", "99")


def test_a_tool_that_hangs_is_left(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "npu-smi").write_text("#!/bin/sh\nexec sleep 60\n")
    (tmp_path / "npu-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    with pytest.raises(ToolError, match="did not answer within"):
        ascend_tools.run_tool("npu-smi", "info", seconds=0.2)


def test_what_outlives_a_kill_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "npu-smi").write_text(f"#!/bin/sh\nsleep 60 &\necho $! >{tmp_path}/pid\nwait\n")
    (tmp_path / "npu-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(ascend_tools, "KILL_SECONDS", 0.1)
    with pytest.raises(ToolError, match="did not answer within"):
        ascend_tools.run_tool("npu-smi", "info", seconds=1.0)
    # The child still holds the pipe: waiting for the end of the output would take as long as it lives.
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)


def write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def test_sysfs_lists_nodes_threads_and_what_is_near_a_device(tmp_path: Path) -> None:
    for node in range(2):
        write(tmp_path / f"devices/system/node/node{node}/cpulist", f"{2 * node}-{2 * node + 1}\n")
    for cpu in range(4):
        siblings = f"{cpu % 2},{cpu % 2 + 2}\n"
        write(tmp_path / f"devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", siblings)
    devices = parse_devices(A2.info(), {})
    write(tmp_path / f"bus/pci/devices/{devices[1].bus}/local_cpulist", "2-3\n")
    near = near_by_bus(devices, tmp_path)
    found = read_topology((0, 1), frozenset(range(4)), near, tmp_path)
    assert found.nodes == {0: {0, 1}, 1: {2, 3}}
    assert list(found.cores) == [{0, 2}, {1, 3}]
    assert found.affinity == {1: {2, 3}}


def test_this_machines_own_topology_can_be_read() -> None:
    allowed = usable_cpus()
    found = read_topology((0,), allowed, {})
    assert allowed
    assert allowed <= frozenset().union(*found.nodes.values())
