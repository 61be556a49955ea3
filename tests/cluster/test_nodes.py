"""The files that a node's programs read, and the state that a kubelet with another policy leaves behind."""

import json
from pathlib import Path

import pytest

from tests.cluster import nodes
from tests.cluster.nodes import NO_CPU_MANAGER, STATIC_CPU_MANAGER, Node
from tests.cluster.paths import State


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(1, State(tmp_path / "state", tmp_path / "run"))


def kept(node: Node, policy: str) -> None:
    node.kubelet_root.mkdir(parents=True, exist_ok=True)
    node.cpu_state.write_text(json.dumps({"policyName": policy, "defaultCpuSet": ""}))


def test_without_a_policy_the_kubelet_configuration_has_none(node: Node) -> None:
    assert not {"cpuManagerPolicy", "kubeReserved"} & set(nodes.kubelet_configuration(node, NO_CPU_MANAGER))


def test_the_static_policy_keeps_a_cpu_for_everybody(node: Node) -> None:
    configuration = nodes.kubelet_configuration(node, STATIC_CPU_MANAGER)
    assert configuration["cpuManagerPolicy"] == "static"
    assert configuration["kubeReserved"] == {"cpu": "100m"}


@pytest.mark.parametrize("policy", [NO_CPU_MANAGER, STATIC_CPU_MANAGER])
def test_what_another_policy_kept_is_forgotten_and_its_own_stays(node: Node, policy: str) -> None:
    nodes.write_configuration(node, policy)
    nodes.forget_cpus(node)
    kept(node, policy)
    nodes.forget_cpus(node)
    assert node.cpu_state.exists()
    kept(node, STATIC_CPU_MANAGER if policy == NO_CPU_MANAGER else NO_CPU_MANAGER)
    nodes.forget_cpus(node)
    assert not node.cpu_state.exists()
