"""Processes are bound to their plan, on the CPUs of this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.node import core_binding, ray_binding, topology
from rljob_runtime.node.affinity import Locality, Plan

RUN = "sums-uid01-1-attempt-1"
PROCESS = Path(__file__).with_name("core_binding_process.py")
CPUS = sorted(topology.usable_cpus())
needs_two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="one CPU: every mask is the same")

Start = Callable[..., Any]


@pytest.fixture(autouse=True)
def scratch(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setenv(core_binding.VARIABLE, RUN)
    monkeypatch.delenv(core_binding.TORCH_NPU, raising=False)
    return tmp_path


@pytest.fixture
def plan() -> Plan:
    """Return a plan with device 4 on the first CPU and everything else on the second."""
    made = Plan({4: (CPUS[0],)}, (CPUS[1],), (CPUS[1],), Locality.SPREAD, ("a note",))
    core_binding.write_plan(RUN, made)
    return made


@contextmanager
def process(*arguments: str, **environ: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    command = [sys.executable, str(PROCESS), *arguments]
    with subprocess.Popen(
        command,
        env=os.environ | environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout is not None
        line = child.stdout.readline()
        try:
            yield child, json.loads(line) if line else {}
        finally:
            child.kill()


def masks(told: dict[str, Any]) -> list[list[int]]:
    return list(told["threads"].values())


@needs_two_cpus
def test_a_plan_is_read_as_it_was_written(plan: Plan) -> None:
    assert core_binding.read_plan(RUN) == plan


@needs_two_cpus
def test_a_process_without_a_device_leaves_the_devices_cpus(plan: Plan) -> None:
    with process("data") as (_, told):
        assert masks(told) == [list(plan.data)] * 2
        assert told["setting"] is None


@needs_two_cpus
@pytest.mark.usefixtures("plan")
def test_a_trainer_moves_to_its_devices_cpus_with_threads_that_began_before() -> None:
    with process("trainer", "4") as (child, told):
        assert masks(told) == [[CPUS[0]]] * 2
        assert told["setting"] == f"1,force:1,npu0:{CPUS[0]}-{CPUS[0]}"
        seen = core_binding.look(RUN)
        assert [(one.role, one.pid, one.strayed) for one in seen] == [(core_binding.Role.TRAINER, child.pid, "")]


@needs_two_cpus
@pytest.mark.usefixtures("plan")
def test_a_rollout_worker_takes_the_visible_device_of_its_rank() -> None:
    with process("rollout", "1", ASCEND_RT_VISIBLE_DEVICES="3,4") as (_, told):
        assert masks(told) == [[CPUS[0]]] * 2
        assert told["setting"] == f"1,force:1,npu0:{CPUS[0]}-{CPUS[0]},npu1:{CPUS[0]}-{CPUS[0]}"


@needs_two_cpus
@pytest.mark.usefixtures("plan")
def test_the_users_own_setting_of_torch_npu_stays() -> None:
    with process("trainer", "4", CPU_AFFINITY_CONF="1") as (_, told):
        assert told["setting"] == "1"


@needs_two_cpus
@pytest.mark.usefixtures("plan")
def test_a_device_that_the_plan_lacks_is_reported_and_left_unbound() -> None:
    with process("rollout", "0", ASCEND_RT_VISIBLE_DEVICES="9") as (child, told):
        assert masks(told) == [CPUS] * 2
        child.kill()
        assert child.stderr is not None
        assert "device 9 is not in the plan of this node (devices 4)" in child.stderr.read()


@needs_two_cpus
@pytest.mark.usefixtures("plan")
def test_a_process_that_leaves_its_plan_is_seen() -> None:
    with process("trainer", "4") as (child, _):
        os.sched_setaffinity(child.pid, CPUS)
        (seen,) = core_binding.look(RUN)
        assert seen.strayed == ",".join(map(str, CPUS[1:])) or seen.strayed.startswith(str(CPUS[1]))


@needs_two_cpus
@pytest.mark.usefixtures("plan")
def test_processes_that_ended_are_not_counted() -> None:
    with process("data"):
        assert len(core_binding.look(RUN)) == 1
    assert core_binding.look(RUN) == []


def test_without_a_plan_nothing_is_bound() -> None:
    with process("trainer", "4") as (_, told):
        assert masks(told) == [CPUS] * 2


def test_a_broken_plan_is_reported_and_binds_nothing(scratch: Path) -> None:
    folder = scratch / "rljob-binding" / RUN
    folder.mkdir(parents=True)
    (folder / core_binding.PLAN_FILE).write_text("{}")
    with process("data") as (child, told):
        assert masks(told) == [CPUS] * 2
        child.kill()
        assert child.stderr is not None
        assert "cannot read the plan of this node" in child.stderr.read()


@needs_two_cpus
@pytest.mark.usefixtures("plan")
def test_the_cpuset_is_seen_through_an_inherited_mask() -> None:
    code = "from rljob_runtime.node.topology import usable_cpus; print(sorted(usable_cpus()))"
    command = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{CPUS[0]}}}); {code}"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert json.loads(told) == CPUS


def test_devices_of_ray_are_followed_only_where_the_run_asks_for_it(capsys: pytest.CaptureFixture[str]) -> None:
    ray_binding.install({})
    assert capsys.readouterr().err == ""
    ray_binding.install(ray_binding.variables())
    assert "this Ray has no manager of NPUs" in capsys.readouterr().err
