"""The core knows a training framework by its Launcher only: another one decides, checks and starts its own way."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from builders import NOW, cluster, config, job, pod, small_spec, snapshot, status_after, status_intended
from builders import validate as validate_for_verl

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.launcher import ClassDefault, Launcher
from rljob.core.observed import Observed
from rljob.core.plan import CreateObject, SubmitJob
from rljob.core.reconcile import reconcile
from rljob.core.spec.decisions import Answer, Question
from rljob.core.validation.validate import validate
from rljob.core.validation.violation import Check, Violation
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from rljob.render.configmap import JOB_KEY
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig
from rljob_runtime.planning.layouts import Job as LayoutJob
from rljob_runtime.planning.memory import Plan
from rljob_runtime.planning.rollout.setup import Setup
from rljob_runtime.planning.shapes import Shape

FSDP_WITH_TENSOR = small_spec({"trainer": {"parallelism": {"tensor": 2}}})
"""verl refuses it: FSDP2 has no tensor parallelism."""


def few_steps(spec: RLJobSpec) -> Iterator[Violation]:
    if spec.trainer.steps > 10:
        yield Violation("spec.trainer.steps", "this framework stops after 10")


@dataclass(frozen=True)
class Shell:
    """A framework that runs a script: it has no keys, one rule and one decision."""

    judges: tuple[Check, ...] = ()
    doubts: tuple[Check, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    entrypoint: str = "sh /code/train.sh"

    def checks(self, spec: RLJobSpec) -> tuple[Check, ...]:
        del spec
        return self.judges

    def warnings(self, spec: RLJobSpec) -> tuple[Check, ...]:
        del spec
        return self.doubts

    def questions(self, spec: RLJobSpec) -> tuple[Question, ...]:
        del spec
        return (Question("trainer.backend", lambda _: Answer("Shell", "there is one")),)

    def modules(self, spec: RLJobSpec) -> tuple[str, ...]:
        del spec
        return ()

    def job_config(
        self, job: JobIdentity, spec: RLJobSpec, generation: int, earlier_path: str | None = None
    ) -> JobConfig:
        return replace(LAUNCHER.job_config(job, spec, generation, earlier_path), overrides={})

    def losses(self, spec: RLJobSpec) -> tuple[str, ...]:
        del spec
        return ()

    def class_defaults(self, spec: RLJobSpec) -> tuple[ClassDefault, ...]:
        del spec
        return ()

    def memory_plan(self, spec: RLJobSpec, shape: Shape) -> Plan | None:
        del spec, shape
        return None

    def rollout_setup(self, spec: RLJobSpec, shape: Shape) -> Setup | None:
        del spec, shape
        return None

    def layout_job(self, spec: RLJobSpec, shape: Shape) -> LayoutJob | None:
        del spec, shape
        return None


SHELL: Launcher = Shell()


def test_only_the_launchers_own_rules_apply_beside_those_of_the_core() -> None:
    assert validate_for_verl("sums", FSDP_WITH_TENSOR).violations
    assert validate("sums", FSDP_WITH_TENSOR, launcher=SHELL, accelerators=BUILT_IN).violations == ()
    (violation,) = validate(
        "sums", FSDP_WITH_TENSOR, launcher=Shell(judges=(few_steps,)), accelerators=BUILT_IN
    ).violations
    assert violation.field == "spec.trainer.steps"
    doubtful = validate("sums", FSDP_WITH_TENSOR, launcher=Shell(doubts=(few_steps,)), accelerators=BUILT_IN)
    assert doubtful.spec is not None
    assert [warning.field for warning in doubtful.warnings] == ["spec.trainer.steps"]


def test_its_decisions_are_recorded_before_those_of_the_core() -> None:
    status = status_after(reconcile(Observed(job(), snapshot=None), NOW, SHELL, BUILT_IN))
    names = [decision["name"] for decision in status["resolved"]["decisions"]]
    assert names[:2] == ["trainer.backend", "restart.scope"]


def test_its_configuration_is_frozen_and_its_command_submitted() -> None:
    begun = status_after(reconcile(Observed(job(), snapshot=None), NOW, SHELL, BUILT_IN))
    plan = reconcile(Observed(job(status=begun), snapshot=None, config=None), NOW, SHELL, BUILT_IN)
    (frozen,) = (effect.manifest for effect in plan.effects if isinstance(effect, CreateObject))
    assert JobConfig.from_json(frozen["data"][JOB_KEY]).overrides == {}
    assert JobConfig.from_json(config()["data"][JOB_KEY]).overrides
    world = Observed(
        job(status=status_intended()),
        clusters=(cluster(ready=1),),
        head_pod=pod(),
        snapshot=snapshot(),
        ray_job=None,
    )
    (submission,) = reconcile(world, NOW, SHELL, BUILT_IN).effects
    assert isinstance(submission, SubmitJob)
    assert submission.entrypoint == "sh /code/train.sh"
