"""verl 0.9.1 behind the protocol of the core."""

from __future__ import annotations

from collections.abc import Mapping

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.launcher import ClassDefault
from rljob.core.spec.decisions import Question
from rljob.core.validation.violation import Check
from rljob.launchers.job_config import ENTRYPOINT
from rljob.launchers.verl import optimizations
from rljob.launchers.verl.checks import (
    batches,
    checkpoints,
    data,
    drafts,
    engines,
    graphs,
    limits,
    memory,
    model_splits,
    numbers,
    overrides,
    parallelism,
    rollout,
    schedule,
    scheduler,
    upstream,
)
from rljob.launchers.verl.decisions import QUESTIONS
from rljob.launchers.verl.effective import baseline_of
from rljob.launchers.verl.job import job_config
from rljob.launchers.verl.layout_job import layout_job
from rljob.launchers.verl.memory import memory_plan
from rljob.launchers.verl.rollout_setup import rollout_setup
from rljob.launchers.verl.versions import VERSIONS
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig
from rljob_runtime.planning.layouts import Job
from rljob_runtime.planning.memory import Plan
from rljob_runtime.planning.rollout.setup import Setup
from rljob_runtime.planning.shapes import Shape

CHECKS: tuple[Check, ...] = (
    *parallelism.CHECKS,
    *rollout.CHECKS,
    *graphs.CHECKS,
    *drafts.CHECKS,
    *scheduler.CHECKS,
    *batches.CHECKS,
    *data.CHECKS,
    *engines.CHECKS,
    *numbers.CHECKS,
    *model_splits.CHECKS,
    *memory.CHECKS,
    *overrides.CHECKS,
    *checkpoints.CHECKS,
    *limits.CHECKS,
    *optimizations.CHECKS,
    *upstream.CHECKS,
)
WARNINGS: tuple[Check, ...] = (
    *model_splits.WARNINGS,
    *memory.WARNINGS,
    *graphs.WARNINGS,
    *drafts.WARNINGS,
    *limits.WARNINGS,
    *overrides.WARNINGS,
    *checkpoints.WARNINGS,
    *schedule.WARNINGS,
    *rollout.WARNINGS,
    *scheduler.WARNINGS,
    *batches.WARNINGS,
    *optimizations.WARNINGS,
    *upstream.WARNINGS,
)


class VerlLauncher:
    """Implements `rljob.core.launcher.Launcher`."""

    versions: Mapping[str, str] = VERSIONS
    entrypoint = ENTRYPOINT

    def checks(self, spec: RLJobSpec) -> tuple[Check, ...]:
        """Return the checks of a spec that follow from how verl works."""
        del spec
        return CHECKS

    def warnings(self, spec: RLJobSpec) -> tuple[Check, ...]:
        """Return the checks whose findings are reported and do not refuse the job."""
        del spec
        return WARNINGS

    def questions(self, spec: RLJobSpec) -> tuple[Question, ...]:
        """Return the fields that verl decides where the spec says Auto."""
        del spec
        return QUESTIONS

    def modules(self, spec: RLJobSpec) -> tuple[str, ...]:
        """Return the Python modules that a run imports."""
        del spec
        return ("rljob_runtime", "ray", "verl", "vllm")

    def job_config(
        self, job: JobIdentity, spec: RLJobSpec, generation: int, earlier_path: str | None = None
    ) -> JobConfig:
        """Return job.json of a cluster generation."""
        return job_config(job, spec, generation, earlier_path)

    def losses(self, spec: RLJobSpec) -> tuple[str, ...]:
        """Return nothing: it is what others are compared with."""
        del spec
        return ()

    def class_defaults(self, spec: RLJobSpec) -> tuple[ClassDefault, ...]:
        """Return the rows of the class's baseline that apply."""
        return tuple(ClassDefault(row.key, value, row.why) for row, value in baseline_of(spec))

    def memory_plan(self, spec: RLJobSpec, shape: Shape) -> Plan | None:
        """Return the memory that each phase of a step takes of a die."""
        return memory_plan(spec, shape)

    def rollout_setup(self, spec: RLJobSpec, shape: Shape) -> Setup | None:
        """Return the rollout of a step."""
        return rollout_setup(spec, shape)

    def layout_job(self, spec: RLJobSpec, shape: Shape) -> Job | None:
        """Return the facts from which layouts are planned."""
        return layout_job(spec, shape)
