"""The seam for training frameworks: what the core, the CLI and the local run ask of one.

`rljob.launchers` implements it. Wiring (`rljob.__main__`, `rljob.cli.main`) passes the implementation in, so that
nothing below it knows the name of a framework.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import Question
from rljob.core.validation.violation import Check
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig, OverrideValue
from rljob_runtime.planning.layouts import Job as LayoutJob
from rljob_runtime.planning.memory import Plan as MemoryPlan
from rljob_runtime.planning.rollout.setup import Setup as RolloutSetup
from rljob_runtime.planning.shapes import Shape


@dataclass(frozen=True)
class ClassDefault:
    """A setting of the framework that follows from the accelerator's class."""

    key: str
    value: OverrideValue
    reason: str


class Launcher(Protocol):
    """A training framework, or several from which the spec chooses.

    Every member is pure and total for a spec whose types hold and whose class is known.
    """

    def checks(self, spec: RLJobSpec) -> tuple[Check, ...]:
        """Return the checks of this spec that follow from how the framework works."""

    def warnings(self, spec: RLJobSpec) -> tuple[Check, ...]:
        """Return the checks whose findings are reported and do not refuse the job."""

    def questions(self, spec: RLJobSpec) -> tuple[Question, ...]:
        """Return the fields that the framework decides where the spec says Auto."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Return the releases of the framework and of what it stands on, for which the launcher was made."""

    @property
    def entrypoint(self) -> str:
        """Return the command that Ray runs on the head for every attempt."""

    def modules(self, spec: RLJobSpec) -> tuple[str, ...]:
        """Return the Python modules that a run imports; a local run looks for them before it starts anything."""

    def job_config(
        self, job: JobIdentity, spec: RLJobSpec, generation: int, earlier_path: str | None = None
    ) -> JobConfig:
        """Return job.json of a cluster generation.

        `earlier_path` is the checkpoint folder of the job that `checkpoint.from.job` names, or None where that job is
        not known; the run then begins at step 0.
        """

    def losses(self, spec: RLJobSpec) -> tuple[str, ...]:
        """Return what a job of this spec loses compared with the trainer of the runtime, a sentence for each."""

    def class_defaults(self, spec: RLJobSpec) -> tuple[ClassDefault, ...]:
        """Return the settings that the accelerator's class adds to what the spec says."""

    def memory_plan(self, spec: RLJobSpec, shape: Shape) -> MemoryPlan | None:
        """Return the memory that each phase of a step takes of a die; None where it is not planned."""

    def rollout_setup(self, spec: RLJobSpec, shape: Shape) -> RolloutSetup | None:
        """Return the rollout of a step as it can be simulated; None where it is not known."""

    def layout_job(self, spec: RLJobSpec, shape: Shape) -> LayoutJob | None:
        """Return the facts from which layouts are planned; None where they are not known."""
