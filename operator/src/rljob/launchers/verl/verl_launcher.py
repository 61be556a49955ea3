"""verl 0.9.1 behind the protocol of the core."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.launcher import ClassDefault
from rljob.core.validation.violation import Check
from rljob.launchers.verl import optimizations
from rljob.launchers.verl.checks import (
    agent,
    asynchronous,
    batches,
    checkpoints,
    closed_sets,
    data,
    drafts,
    engines,
    graphs,
    judge,
    limits,
    lora,
    memory,
    model_splits,
    numbers,
    overrides,
    parallelism,
    rollout,
    schedule,
    scheduler,
    unread_keys,
    upstream,
)
from rljob.launchers.verl.decisions import QUESTIONS
from rljob.launchers.verl.effective import baseline_of
from rljob.launchers.verl.job import job_config
from rljob.launchers.verl.memory import memory_plan
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig
from rljob_runtime.planning.memory import MemoryPlan
from rljob_runtime.planning.shapes import Shape

CHECKS: tuple[Check, ...] = (
    *parallelism.CHECKS,
    *rollout.CHECKS,
    *graphs.CHECKS,
    *drafts.CHECKS,
    *scheduler.CHECKS,
    *batches.CHECKS,
    *agent.CHECKS,
    *asynchronous.CHECKS,
    *data.CHECKS,
    *judge.CHECKS,
    *lora.CHECKS,
    *closed_sets.CHECKS,
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
    *agent.WARNINGS,
    *asynchronous.WARNINGS,
    *optimizations.WARNINGS,
    *upstream.WARNINGS,
    *unread_keys.WARNINGS,
)


class VerlLauncher:
    """Implements `rljob.core.launcher.Launcher` and `Plans`."""

    checks = CHECKS
    warnings = WARNINGS
    questions = QUESTIONS
    modules = ("rljob_runtime", "ray", "verl", "vllm")

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

    def memory_plan(self, spec: RLJobSpec, shape: Shape) -> MemoryPlan | None:
        """Return the memory that each phase of a step takes of a die."""
        return memory_plan(spec, shape)
