"""The launcher's use of the nodes' answers: plans, and records of bound processes."""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from rljob_runtime import ray_cluster
from rljob_runtime.contract import CoreBinding, ExitCode, NodeNeeds, Phase, Platform, Progress, RequiredPath
from rljob_runtime.contract import Role as NodeRole
from rljob_runtime.node import core_binding, hccl, topology
from rljob_runtime.node.core_binding import BoundProcess, Role
from rljob_runtime.node_checks import evaluate, preflight
from rljob_runtime.node_checks.evaluate import Check, Finding, Window
from rljob_runtime.node_checks.facts import NodeFacts, Request, SharedFolder
from rljob_runtime.node_checks.gather import plan_node
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool.spool import Spool
from runtime.tests.conftest import MakeJob

RUN = "sums-uid01-1-attempt-1"
CPUS = topology.usable_cpus()


@pytest.fixture
def started(spool: Spool) -> Spool:
    spool.write_progress(Progress(pod_uid="pod-1", phase=Phase.TRAINING, attempt=1, step=3))
    return spool


def worker(name: str, plan: str | None, *notes: str) -> NodeFacts:
    return NodeFacts(node=name, time=0.5, plan=plan, plan_notes=notes)


def test_a_head_that_hangs_delays_nothing(
    started: Spool, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = threading.Event()
    monkeypatch.setattr(preflight, "ANSWER_SECONDS", 0.1)
    monkeypatch.setattr(preflight, "gather", lambda *_, **__: ends.wait(60))
    monkeypatch.setattr(ray_cluster, "on_device_nodes", lambda *_: {"10.0.0.1": NodeFacts("a", time.time())})
    names = preflight.check(make_job(checkpoint_path=None, log_path=None), RUN, started)
    assert names == {"10.0.0.1": "a"}
    assert not ends.is_set()
    ends.set()
    assert "the head was not checked: it did not answer within 0.1 s" in capsys.readouterr().err


def test_a_node_is_asked_for_what_its_role_reads(make_job: MakeJob) -> None:
    fields = ("model.path", "reward.path", "reward.judge.path", "data.train[0]")
    paths = tuple(RequiredPath(field, f"/{field}") for field in fields)
    job = make_job(required_paths=paths)
    wanted = preflight.request(job, RUN, (SharedFolder("checkpoint.path", "/saves", "name", "token"),))
    of = {role: preflight.of_role(wanted, job, role) for role in (None, *NodeRole)}
    assert of[None] is of[NodeRole.TRAINER] is wanted
    assert (of[NodeRole.ROLLOUT].paths, of[NodeRole.ROLLOUT].model) == (("/model.path",), "/model.path")
    assert (of[NodeRole.JUDGE].paths, of[NodeRole.JUDGE].model) == (("/reward.judge.path",), None)
    assert of[NodeRole.ROLLOUT].folders == of[NodeRole.JUDGE].folders == ()


def test_a_path_that_all_nodes_of_a_role_lack_is_the_manifests_fault(make_job: MakeJob) -> None:
    job = make_job(required_paths=(RequiredPath("reward.path", "/code/reward.py"),))
    lacking = ("/code/reward.py",)
    nodes = [
        NodeFacts("a", 0.0, role=NodeRole.TRAINER, missing_paths=lacking),
        NodeFacts("b", 0.0, role=NodeRole.TRAINER, missing_paths=lacking),
        NodeFacts("c", 0.0, role=NodeRole.JUDGE),
    ]
    found = [Finding(Check.PATHS, node.node, "missing") for node in nodes[:2]]
    with pytest.raises(RefusedError, match=r"reward.path: /code/reward.py does not exist") as refused:
        evaluate.refuse(job, nodes, found)
    assert refused.value.code is ExitCode.BAD_CONFIG
    with pytest.raises(RefusedError) as refused:
        evaluate.refuse(job, nodes, found[:1])
    assert (refused.value.code, refused.value.nodes) == (ExitCode.ENVIRONMENT, ("a",))


def test_a_silent_node_is_named_by_itself_or_by_its_pod(
    started: Spool, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"10.0.0.1": "a", "10.0.0.2": "b", "10.0.0.3": None}
    facts = {"10.0.0.1": NodeFacts("a", time.time()), "10.0.0.2": None, "10.0.0.3": None}

    def answers(task: Callable[..., object], *_: object) -> Mapping[str, object]:
        return names if task is hccl.node_name else facts

    monkeypatch.setattr(preflight, "gather", lambda *_, **__: NodeFacts("head", time.time(), is_head=True))
    monkeypatch.setattr(ray_cluster, "on_device_nodes", answers)
    monkeypatch.setattr(ray_cluster, "host_names", lambda: {"10.0.0.3": "run-1-worker-x"})
    with pytest.raises(RefusedError) as refused:
        preflight.check(make_job(checkpoint_path=None, log_path=None), RUN, started)
    assert "b: did not answer the check in time" in str(refused.value)
    assert "run-1-worker-x (10.0.0.3): did not answer the check in time" in str(refused.value)
    assert refused.value.nodes == ("b",)


@pytest.mark.parametrize(
    ("lost", "suspect"), [(["10.0.0.1"], "a"), (["10.0.0.1", "10.0.0.2"], "a"), (["10.0.0.9"], None)]
)
def test_a_lost_node_is_named_whichever_of_its_pods_are_lost(lost: list[str], suspect: str | None) -> None:
    assert preflight.suspect_of(lost, {"10.0.0.1": "a", "10.0.0.2": "a", "10.0.0.3": "b"}) == suspect


def test_of_several_nodes_that_are_lost_at_once_none_is_suspected() -> None:
    assert preflight.suspect_of(["10.0.0.1", "10.0.0.2"], {"10.0.0.1": "a", "10.0.0.2": "b"}) is None


def test_what_the_heads_check_raises_is_raised(
    started: Spool, make_job: MakeJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> NodeFacts:
        raise ValueError("a defect")

    monkeypatch.setattr(preflight, "gather", broken)
    monkeypatch.setattr(ray_cluster, "on_device_nodes", lambda *_: {})
    with pytest.raises(ValueError, match="a defect"):
        preflight.check(make_job(checkpoint_path=None, log_path=None), RUN, started)


def test_nodes_with_the_same_plan_are_grouped_and_others_have_a_reason(
    started: Spool, make_job: MakeJob, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = [worker("a", "Near: npu0 1-19"), worker("b", None, "nothing is bound: no"), worker("c", "Near: npu0 1-19")]
    preflight.conclude(make_job(core_binding=True), started, facts, Window(0, 1), [], 1.0)
    progress = started.progress()
    assert progress is not None
    assert progress.core_binding == CoreBinding(
        nodes=3, planned_nodes=2, plans=("a, c: Near: npu0 1-19",), notes=("b: nothing is bound: no",)
    )
    assert "rljob: core binding: b: nothing is bound: no" in capsys.readouterr().err


def test_a_run_that_binds_nothing_logs_nothing_about_it(started: Spool, make_job: MakeJob) -> None:
    preflight.conclude(make_job(), started, [worker("a", None)], Window(0, 1), [], 1.0)
    progress = started.progress()
    assert progress is not None
    assert progress.core_binding is None


def test_processes_that_stray_are_counted_and_reported_while_the_trainer_writes(
    started: Spool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started.update_progress(core_binding=CoreBinding(nodes=1, planned_nodes=1))
    seen = [BoundProcess(Role.TRAINER, 7, "1-19", ""), BoundProcess(Role.ROLLOUT, 8, "1-19", "0,20-39")]
    monkeypatch.setattr(ray_cluster, "on_device_nodes", lambda *_: {"10.0.0.1": seen, "10.0.0.2": None})
    preflight._look(RUN, started)
    current = started.update_progress(step=4)
    assert (current.step, current.core_binding) == (4, CoreBinding(1, 1, bound_processes=1, strayed_processes=1))
    assert "rollout 8 at 10.0.0.1 may use 0,20-39 in addition to 1-19" in capsys.readouterr().err


def test_a_ray_that_is_gone_ends_nothing(started: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise ConnectionError("disconnected")

    monkeypatch.setattr(ray_cluster, "on_device_nodes", gone)
    preflight._look(RUN, started)
    assert started.progress() == Progress(pod_uid="pod-1", phase=Phase.TRAINING, attempt=1, step=3)


def test_npus_get_five_cpus_each_and_the_whole_cpuset_of_a_whole_node(make_job: MakeJob) -> None:
    job = make_job(platform=Platform.NPU, core_binding=True, needs=NodeNeeds(cpus=160, whole_node=True))
    wanted = preflight.request(job, RUN, ())
    assert (wanted.bind_cpus_min, wanted.exclusive_cpus) == (5, None)


def test_without_npus_only_a_cpuset_of_the_asked_size_is_bound(make_job: MakeJob) -> None:
    wanted = preflight.request(make_job(core_binding=True, needs=NodeNeeds(cpus=4)), RUN, ())
    assert (wanted.bind_cpus_min, wanted.exclusive_cpus) == (1, 4)
    assert preflight.request(make_job(core_binding=True), RUN, ()).exclusive_cpus == 0
    assert preflight.request(make_job(), RUN, ()).bind_cpus_min is None


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Request:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv(core_binding.VARIABLE, raising=False)
    monkeypatch.setattr(os, "getppid", lambda: 0)
    return Request(RUN, 1, with_npus=False, paths=(), folders=(), model=None, bind_cpus_min=1, exclusive_cpus=len(CPUS))


@pytest.mark.skipif(len(CPUS) < 2, reason="one CPU cannot be shared out")
def test_an_exclusive_cpuset_of_this_machine_is_planned_and_left_for_the_run(asked: Request) -> None:
    told, notes = plan_node(asked, CPUS, {})
    plan = core_binding.read_plan(RUN)
    assert plan is not None
    assert (told, notes) == (plan.describe(), ())
    assert {cpu for cpus in plan.devices.values() for cpu in cpus} | set(plan.system) | set(plan.data) == CPUS


def test_a_shared_cpuset_is_left_alone_with_the_reason(asked: Request) -> None:
    told, (note,) = plan_node(dataclasses.replace(asked, exclusive_cpus=1000), CPUS, {})
    assert told is None
    assert f"the cpuset has {len(CPUS)} CPUs, but the pod requests 1000" in note
    assert core_binding.read_plan(RUN) is None


def test_too_few_cpus_are_reported_not_raised(asked: Request) -> None:
    told, (note,) = plan_node(dataclasses.replace(asked, devices=1000), CPUS, {})
    assert told is None
    assert "are too few for 1000 devices" in note
