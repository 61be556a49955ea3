"""What the launcher waits for in the Ray cluster, and how it ends when that does not happen."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest

from rljob_runtime import ray_cluster
from rljob_runtime.contract import ROLE_RESOURCES, ExitCode, NodeGroup, Platform, Role
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.verl_plugin import launcher
from runtime.tests.conftest import MakeJob

RESOURCE = ray_cluster.RESOURCE


def cluster(
    monkeypatch: pytest.MonkeyPatch, nodes: int = 1, free: float = 2, actor: bool = False, role: Role | None = None
) -> None:
    """Stand in for Ray's answers about a cluster with two devices a node."""

    def get_actor(name: str, namespace: str) -> object:
        if not actor:
            raise ValueError(f"{namespace}/{name}")
        return object()

    offered = {RESOURCE: 2.0} | ({} if role is None else {ROLE_RESOURCES[role]: 1.0})
    listed = [{"Alive": True, "NodeID": f"{n}", "NodeManagerAddress": "10.0.0.1", "Resources": offered}
              for n in range(nodes)]  # fmt: skip
    answers = SimpleNamespace(nodes=lambda: listed, available_resources=lambda: {RESOURCE: free}, get_actor=get_actor)
    monkeypatch.setitem(sys.modules, "ray", answers)


def refusal(wait: object) -> tuple[ExitCode, str]:
    with pytest.raises(RefusedError) as caught:
        wait()  # type: ignore[operator]
    return caught.value.code, caught.value.reason


def test_a_cluster_that_has_everything_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, make_job: MakeJob) -> None:
    cluster(monkeypatch)
    seen: list[int] = []
    ray_cluster.wait_for_devices(make_job(), 0.0, seen.append)
    ray_cluster.wait_for_predecessor(("trainer", "ns"), 0.0)
    assert seen == [2]


def test_a_node_that_does_not_join_is_counted(monkeypatch: pytest.MonkeyPatch, make_job: MakeJob) -> None:
    cluster(monkeypatch, nodes=0)
    found = refusal(lambda: ray_cluster.wait_for_nodes(make_job(), 0.0))
    assert found == (ExitCode.ENVIRONMENT, "DevicesMissing")


def test_nodes_of_each_role_are_counted_by_themselves(monkeypatch: pytest.MonkeyPatch, make_job: MakeJob) -> None:
    groups = (NodeGroup("train", Role.TRAINER, 1, 2), NodeGroup("generate", Role.ROLLOUT, 2, 2))
    job = make_job(nodes=3, devices=4, groups=groups)
    # Three nodes with devices, none of which has the role of the trainer's.
    cluster(monkeypatch, nodes=3, role=Role.ROLLOUT)
    seen: list[int] = []
    with pytest.raises(RefusedError, match="0 of 1 nodes with 2 NPU and 1 rljob_trainer, 2 of 2 nodes with 1 NPU"):
        ray_cluster.wait_for_nodes(job, 0.0, seen.append)
    assert seen == [2]
    assert ray_cluster.sole_nodes(job) == {}, "replicas of the rollout may be lost"
    cluster(monkeypatch, nodes=3, role=Role.JUDGE)
    assert len(ray_cluster.sole_nodes(job)) == 3, "a judge may not"
    cluster(monkeypatch, nodes=3, role=Role.ROLLOUT)
    assert len(ray_cluster.sole_nodes(make_job())) == 3


def test_devices_that_another_run_has_are_waited_for(monkeypatch: pytest.MonkeyPatch, make_job: MakeJob) -> None:
    cluster(monkeypatch, free=1)
    found = refusal(lambda: ray_cluster.wait_for_devices(make_job(), 0.0))
    assert found == (ExitCode.ENVIRONMENT, "DevicesBusy")


def test_a_run_that_has_not_ended_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster(monkeypatch, actor=True)
    found = refusal(lambda: ray_cluster.wait_for_predecessor(("trainer", "ns"), 0.0))
    assert found == (ExitCode.ENVIRONMENT, "ClusterBusy")


@pytest.mark.parametrize(("loaded", "fails"), [(["rljob", "cpu"], False), (["rljob"], True), ([], True)])
def test_verl_must_have_loaded_the_plug_in(
    monkeypatch: pytest.MonkeyPatch, make_job: MakeJob, loaded: list[str], fails: bool
) -> None:
    monkeypatch.setitem(sys.modules, "verl", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "rljob_runtime.verl_plugin.plugin", SimpleNamespace(LOADED=loaded))
    if fails:
        assert refusal(lambda: launcher.require_plugin(make_job())) == (ExitCode.BAD_CONFIG, "PluginMissing")
    else:
        launcher.require_plugin(make_job())


def test_on_npus_the_head_must_be_able_to_import_torch_npu(monkeypatch: pytest.MonkeyPatch, make_job: MakeJob) -> None:
    monkeypatch.setitem(sys.modules, "torch_npu", None)
    launcher.require_torch_npu(make_job())
    npu = make_job(platform=Platform.NPU)
    assert refusal(lambda: launcher.require_torch_npu(npu)) == (ExitCode.BAD_CONFIG, "TorchNPUMissing")
    monkeypatch.setitem(sys.modules, "torch_npu", SimpleNamespace())
    launcher.require_torch_npu(npu)
