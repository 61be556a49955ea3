"""The seam for training frameworks: what the core, the CLI and the local run ask of one.

`rljob.launchers` implements it. Wiring (`rljob.__main__`, `rljob.cli.main`) passes `LauncherOf` in, so that nothing
below it knows the name of a framework. What only some frameworks can do is an interface of its own, which a launcher
has or has not.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.decisions import Question
from rljob.core.validation.violation import Check
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig, OverrideValue
from rljob_runtime.planning.memory import MemoryPlan
from rljob_runtime.planning.shapes import Shape


@dataclass(frozen=True)
class ClassDefault:
    """A setting of the framework that follows from the accelerator's class."""

    key: str
    value: OverrideValue
    reason: str


class Launcher(Protocol):
    """A training framework. Its functions are pure, and total for a spec whose types hold and whose class is known."""

    @property
    def checks(self) -> tuple[Check, ...]:
        """Return the checks that follow from how the framework works."""

    @property
    def warnings(self) -> tuple[Check, ...]:
        """Return the checks whose findings are reported and do not refuse the job."""

    @property
    def questions(self) -> tuple[Question, ...]:
        """Return the fields that the framework decides where the spec says Auto."""

    @property
    def modules(self) -> tuple[str, ...]:
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


LauncherOf = Callable[[RLJobSpec], Launcher]
"""Returns what trains a job."""


@runtime_checkable
class Plans(Protocol):
    """A launcher whose jobs can be planned, because it knows what they keep in memory."""

    def memory_plan(self, spec: RLJobSpec, shape: Shape) -> MemoryPlan | None:
        """Return the memory that each phase of a step takes of a die; None for a class without memory of its own."""
