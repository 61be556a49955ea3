"""The network interface for collectives, in pods and on nodes with several interfaces."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from rljob_runtime.node.hccl import Interface, InterfaceError, choose, hccl_matches, read_interfaces

POD = (
    Interface("lo", "127.0.0.1"),
    Interface("eth0", "10.244.1.7"),
    Interface("net1", "192.168.10.7"),
    Interface("net1", "fd00::7"),
)
ALL_THREE = {"HCCL_SOCKET_IFNAME": "=net1", "GLOO_SOCKET_IFNAME": "net1", "TP_SOCKET_IFNAME": "net1"}


def test_the_interface_with_the_pods_address_is_chosen_for_all_three() -> None:
    assert choose({"RLJOB_POD_IP": "192.168.10.7"}, POD) == ALL_THREE


def test_an_address_of_ipv6_is_found_however_it_is_written() -> None:
    assert choose({"RLJOB_POD_IP": "fd00:0:0::0007"}, POD) == ALL_THREE


def test_the_operators_choice_of_an_address_for_hccl_serves_too() -> None:
    assert choose({"HCCL_IF_IP": "10.244.1.7"}, POD)["GLOO_SOCKET_IFNAME"] == "eth0"


def test_what_the_user_sets_wins_and_the_others_follow_it() -> None:
    environ = {"RLJOB_POD_IP": "10.244.1.7", "HCCL_SOCKET_IFNAME": "net"}
    assert choose(environ, POD) == {"GLOO_SOCKET_IFNAME": "net1", "TP_SOCKET_IFNAME": "net1"}


def test_nothing_is_set_where_everything_is_set_or_nothing_is_known() -> None:
    assert choose(ALL_THREE, POD) == {}
    assert choose({}, POD) == {}
    assert choose({"RLJOB_POD_IP": "10.0.0.9"}, POD) == {}


@pytest.mark.parametrize("variable", ["GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"])
def test_a_named_interface_that_is_not_there_is_an_error(variable: str) -> None:
    with pytest.raises(InterfaceError, match=rf"{variable}=bond0: interface bond0 does not exist; .*eth0, lo, net1"):
        choose({variable: "bond0"}, POD)


def test_a_rule_of_hccl_that_selects_nothing_is_an_error() -> None:
    with pytest.raises(InterfaceError, match="HCCL_SOCKET_IFNAME=enp selects no interface"):
        choose({"HCCL_SOCKET_IFNAME": "enp"}, POD)


@pytest.mark.parametrize(
    ("rule", "selected"),
    [
        ("eth", ["eth0"]),
        ("eth,net", ["eth0", "net1"]),
        ("=eth", []),
        ("=eth0", ["eth0"]),
        ("^eth", ["net1"]),
        ("^=net1", ["eth0"]),
    ],
)
def test_rules_of_hccl_are_read_as_cann_reads_them(rule: str, selected: list[str]) -> None:
    assert hccl_matches(rule, ["eth0", "lo", "net1"]) == selected


def test_this_machines_interfaces_are_those_that_the_kernel_names() -> None:
    found = read_interfaces()
    assert {entry.name for entry in found} <= {name for _, name in socket.if_nameindex()}
    assert Interface("lo", "127.0.0.1") in found


def test_a_process_of_the_run_gets_the_variables_as_it_begins() -> None:
    begin = "from rljob_runtime.node import worker_setup; worker_setup.set_up()"
    code = f"{begin}; import os; print(os.environ['GLOO_SOCKET_IFNAME'])"
    environ = {"RLJOB_POD_IP": "127.0.0.1", "PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "lo"
