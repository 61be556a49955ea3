"""A third launcher, as a framework would bring it: the fields that it reads, its rules, decisions and job.json."""

from __future__ import annotations

from dataclasses import dataclass, replace

from rljob.api.launcher import NO_REWARD, Reads
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.launcher import ClassDefault
from rljob.core.spec.decisions import Answer, Question
from rljob.core.validation.violation import Check
from rljob.launchers.job_config import common_config
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig
from rljob_runtime.contract.command import CommandConfig

SHELL = "Shell"
READS_OF_SHELL = Reads(
    unread=("reward", "algorithm", "critic", "rollout", "verl", "export", "evaluation"),
    members={"optimizations": frozenset({"coreBinding"})},
    stand_ins={"reward": NO_REWARD},
    instead="put it into /code/train.sh",
)


@dataclass(frozen=True)
class Shell:
    """A framework that runs a script with a model, data and a number of steps; it plans no memory."""

    checks: tuple[Check, ...] = ()
    warnings: tuple[Check, ...] = ()
    questions: tuple[Question, ...] = (Question("trainer.backend", lambda _: Answer("Shell", "there is one")),)
    modules: tuple[str, ...] = ("rljob_runtime", "ray")

    def job_config(
        self, job: JobIdentity, spec: RLJobSpec, generation: int, earlier_path: str | None = None
    ) -> JobConfig:
        """Return job.json with the script as its command."""
        words = ("sh", "/code/train.sh", spec.model.path, *spec.data.train)
        return replace(common_config(job, spec, generation, earlier_path), command=CommandConfig(words))

    def losses(self, spec: RLJobSpec) -> tuple[str, ...]:
        """Return what a script loses."""
        del spec
        return ("the script reports no figures",)

    def class_defaults(self, spec: RLJobSpec) -> tuple[ClassDefault, ...]:
        """Return nothing: the script sets everything itself."""
        del spec
        return ()
