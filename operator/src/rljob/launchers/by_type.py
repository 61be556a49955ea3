"""Chooses the launcher that a spec names; the rules of one never judge a job of the other."""

from __future__ import annotations

from collections.abc import Mapping

from rljob.api.launcher import LauncherType
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.launcher import ClassDefault, Launcher
from rljob.core.spec.decisions import Question
from rljob.core.validation.violation import Check
from rljob.launchers.command.launcher import CommandLauncher
from rljob.launchers.job_config import ENTRYPOINT
from rljob.launchers.verl.launcher import VerlLauncher
from rljob.launchers.verl.versions import VERSIONS
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig
from rljob_runtime.planning.layouts import Job
from rljob_runtime.planning.memory import Plan
from rljob_runtime.planning.rollout.setup import Setup
from rljob_runtime.planning.shapes import Shape

LAUNCHERS: Mapping[LauncherType, Launcher] = {
    LauncherType.VERL: VerlLauncher(),
    LauncherType.COMMAND: CommandLauncher(),
}


class LauncherByType:
    """Implements `rljob.core.launcher.Launcher` by the one of the spec's type."""

    versions: Mapping[str, str] = VERSIONS
    entrypoint = ENTRYPOINT

    def checks(self, spec: RLJobSpec) -> tuple[Check, ...]:
        """Return the checks of the spec's launcher."""
        return _of(spec).checks(spec)

    def warnings(self, spec: RLJobSpec) -> tuple[Check, ...]:
        """Return the warnings of the spec's launcher."""
        return _of(spec).warnings(spec)

    def questions(self, spec: RLJobSpec) -> tuple[Question, ...]:
        """Return the decisions of the spec's launcher."""
        return _of(spec).questions(spec)

    def modules(self, spec: RLJobSpec) -> tuple[str, ...]:
        """Return the modules that a run of the spec imports."""
        return _of(spec).modules(spec)

    def job_config(
        self, job: JobIdentity, spec: RLJobSpec, generation: int, earlier_path: str | None = None
    ) -> JobConfig:
        """Return job.json as the spec's launcher writes it."""
        return _of(spec).job_config(job, spec, generation, earlier_path)

    def losses(self, spec: RLJobSpec) -> tuple[str, ...]:
        """Return what a job of the spec's launcher loses."""
        return _of(spec).losses(spec)

    def class_defaults(self, spec: RLJobSpec) -> tuple[ClassDefault, ...]:
        """Return the settings that the accelerator's class adds."""
        return _of(spec).class_defaults(spec)

    def memory_plan(self, spec: RLJobSpec, shape: Shape) -> Plan | None:
        """Return the plan of the spec's launcher."""
        return _of(spec).memory_plan(spec, shape)

    def rollout_setup(self, spec: RLJobSpec, shape: Shape) -> Setup | None:
        """Return the rollout of the spec's launcher."""
        return _of(spec).rollout_setup(spec, shape)

    def layout_job(self, spec: RLJobSpec, shape: Shape) -> Job | None:
        """Return the facts of the spec's launcher."""
        return _of(spec).layout_job(spec, shape)


def _of(spec: RLJobSpec) -> Launcher:
    return LAUNCHERS[spec.launcher.type]
