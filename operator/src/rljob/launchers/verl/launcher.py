"""verl 0.9.1 behind the protocol of the core."""

from __future__ import annotations

from collections.abc import Mapping

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import Question
from rljob.core.validation.violation import Check
from rljob.launchers.verl.checks import (
    batches,
    checkpoints,
    data,
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
from rljob.launchers.verl.job import job_config
from rljob.launchers.verl.memory import memory_plan
from rljob.launchers.verl.versions import VERSIONS
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig
from rljob_runtime.planning.memory import Plan
from rljob_runtime.planning.shapes import Shape


class VerlLauncher:
    """Implements `rljob.core.launcher.Launcher`."""

    checks: tuple[Check, ...] = (
        *parallelism.CHECKS,
        *rollout.CHECKS,
        *graphs.CHECKS,
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
        *upstream.CHECKS,
    )
    warnings: tuple[Check, ...] = (
        *model_splits.WARNINGS,
        *memory.WARNINGS,
        *graphs.WARNINGS,
        *limits.WARNINGS,
        *overrides.WARNINGS,
        *checkpoints.WARNINGS,
        *schedule.WARNINGS,
        *rollout.WARNINGS,
        *scheduler.WARNINGS,
        *batches.WARNINGS,
        *upstream.WARNINGS,
    )
    questions: tuple[Question, ...] = QUESTIONS
    versions: Mapping[str, str] = VERSIONS
    entrypoint = "python -m rljob_runtime launch"
    modules = ("rljob_runtime", "ray", "verl", "vllm")

    def job_config(
        self, job: JobIdentity, spec: RLJobSpec, generation: int, earlier_path: str | None = None
    ) -> JobConfig:
        """Return job.json of a cluster generation."""
        return job_config(job, spec, generation, earlier_path)

    def memory_plan(self, spec: RLJobSpec, shape: Shape) -> Plan | None:
        """Return the memory that each phase of a step takes of a die."""
        return memory_plan(spec, shape)
