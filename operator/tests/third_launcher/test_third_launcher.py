"""A job of a third launcher is judged, decided, frozen and explained its own way; those of the product stay theirs."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from builders import IDENTITY, NOW, Json, job, merged, small_spec, status_after, validate

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.errors import UsageError
from rljob.cli.explain import explain
from rljob.cli.plan.memory import plan_memory
from rljob.core.launcher import LauncherOf
from rljob.core.observed import Observed
from rljob.core.plan import CreateObject
from rljob.core.reconcile import reconcile
from rljob.core.spec.decisions import decide
from rljob.core.spec.mutability import change_violations
from rljob.core.validation.validate import Checked
from rljob.core.validation.validate import validate as validate_for
from rljob.core.validation.violation import Violation
from rljob.render.accelerators import BUILT_IN
from rljob.render.configmap import JOB_KEY, SPEC_KEY, Snapshot, build_snapshot, read_snapshot
from rljob.render.env import operator_env
from rljob_runtime.contract import JobConfig
from third_launcher.conftest import Wire
from third_launcher.shell import READS_OF_SHELL, Shell

SPEC: Json = {name: value for name, value in small_spec().items() if name not in READS_OF_SHELL.unread} | {
    "launcher": {"type": "Shell"}
}
FSDP_WITH_TENSOR: Json = {"trainer": {"parallelism": {"tensor": 2}}}
"""verl refuses it: FSDP2 has no tensor parallelism."""


def few_steps(spec: RLJobSpec) -> Iterator[Violation]:
    if spec.trainer.steps > 1:
        yield Violation("spec.trainer.steps", "this framework stops after 1")


def checked(launcher: LauncherOf, change: Json | None = None) -> Checked:
    return validate_for("sums", merged(SPEC, change or {}), launcher=launcher, accelerators=BUILT_IN)


def typed(launcher: LauncherOf) -> RLJobSpec:
    spec = checked(launcher).spec
    assert spec is not None
    return spec


def test_without_its_wiring_there_is_no_such_type() -> None:
    assert [violation.field for violation in validate("sums", SPEC).violations] == ["spec.launcher.type"]


def test_only_its_own_rules_apply_beside_those_of_the_core(wire: Wire) -> None:
    assert validate("sums", small_spec(FSDP_WITH_TENSOR)).violations
    assert checked(wire(Shell()), FSDP_WITH_TENSOR).violations == ()
    (violation,) = checked(wire(Shell(checks=(few_steps,)))).violations
    assert violation.field == "spec.trainer.steps"
    (warning,) = checked(wire(Shell(warnings=(few_steps,)))).warnings
    assert warning.field == "spec.trainer.steps"


def test_what_it_reads_is_required_and_nothing_else_is_allowed(wire: Wire) -> None:
    launcher = wire(Shell())
    lacking = {name: value for name, value in SPEC.items() if name != "model"}
    found = validate_for("sums", lacking, launcher=launcher, accelerators=BUILT_IN).violations
    assert [violation.field for violation in found] == ["spec.model"]
    (violation,) = checked(launcher, {"rollout": {"engine": "vLLM"}}).violations
    assert str(violation) == (
        "spec.rollout: is not read with launcher.type Shell: remove it; put it into /code/train.sh"
    )


def test_its_decisions_are_recorded_before_those_of_the_core(wire: Wire) -> None:
    status = status_after(reconcile(Observed(job(SPEC), snapshot=None), NOW, wire(Shell()), BUILT_IN))
    names = [decision["name"] for decision in status["resolved"]["decisions"]]
    assert names[:2] == ["trainer.backend", "restart.scope"]


def test_its_configuration_and_the_fields_that_it_reads_are_frozen(wire: Wire) -> None:
    launcher = wire(Shell())
    begun = status_after(reconcile(Observed(job(SPEC), snapshot=None), NOW, launcher, BUILT_IN))
    plan = reconcile(Observed(job(SPEC, begun), snapshot=None, config=None), NOW, launcher, BUILT_IN)
    data = {
        key: text
        for effect in plan.effects
        if isinstance(effect, CreateObject)
        for key, text in effect.manifest.get("data", {}).items()
    }
    config = JobConfig.from_json(data[JOB_KEY])
    assert config.command is not None
    assert config.command.args[:2] == ("sh", "/code/train.sh")
    frozen = json.loads(data[SPEC_KEY])
    assert frozen["launcher"] == {"type": "Shell"}
    assert not set(READS_OF_SHELL.unread) & frozen.keys()


def test_a_frozen_spec_is_read_back_and_keeps_its_type(wire: Wire) -> None:
    before = typed(wire(Shell()))
    after = read_snapshot(build_snapshot(IDENTITY, Snapshot(before), 1), BUILT_IN).spec
    assert list(change_violations(before, after)) == []
    (violation,) = change_violations(before, validate("sums", small_spec()).spec or after)
    assert violation.field == "spec.launcher.type"


def test_its_pods_have_no_variables_of_verl(wire: Wire) -> None:
    spec = typed(wire(Shell()))
    names = {entry["name"] for entry in operator_env(spec, spec.worker_groups[0].template)}
    assert not {"TASK_QUEUE_ENABLE", "RAY_EXPERIMENTAL_NOSET_ASCEND_RT_VISIBLE_DEVICES"} & names


def test_it_is_explained_and_has_no_plans(wire: Wire) -> None:
    launcher = wire(Shell())
    spec = typed(launcher)
    rows = explain(checked(launcher), spec, decide(spec, launcher(spec).questions))
    assert {row.field: row.value for row in rows}["launcher.type"] == "Shell"
    assert launcher(spec).job_config(IDENTITY, spec, 1).total_steps == spec.trainer.steps
    with pytest.raises(UsageError, match=r"launcher\.type is Shell, and the memory of such a job is not known"):
        plan_memory("sums", spec, None, launcher)
