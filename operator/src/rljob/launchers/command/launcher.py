"""A command behind the protocol of the core."""

from __future__ import annotations

from collections.abc import Mapping

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.launcher import ClassDefault
from rljob.core.spec.decisions import Question
from rljob.core.validation.violation import Check
from rljob.launchers.command.checks import CHECKS, WARNINGS
from rljob.launchers.command.job import job_config
from rljob.launchers.command.losses import losses
from rljob.launchers.job_config import ENTRYPOINT
from rljob.launchers.node_needs import CORE_BINDING
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig
from rljob_runtime.planning.layouts import Job
from rljob_runtime.planning.memory import Plan
from rljob_runtime.planning.rollout.setup import Setup
from rljob_runtime.planning.shapes import Shape


class CommandLauncher:
    """Implements `rljob.core.launcher.Launcher`."""

    versions: Mapping[str, str] = {}
    entrypoint = ENTRYPOINT

    def checks(self, spec: RLJobSpec) -> tuple[Check, ...]:
        """Return the checks of what the launcher can do for a command."""
        del spec
        return CHECKS

    def warnings(self, spec: RLJobSpec) -> tuple[Check, ...]:
        """Return the checks whose findings are reported and do not refuse the job."""
        del spec
        return WARNINGS

    def questions(self, spec: RLJobSpec) -> tuple[Question, ...]:
        """Return the only decision that does not depend on a framework."""
        del spec
        return (CORE_BINDING,)

    def modules(self, spec: RLJobSpec) -> tuple[str, ...]:
        """Return the modules that the launcher needs; those of the command are not known."""
        del spec
        return ("rljob_runtime", "ray")

    def job_config(
        self, job: JobIdentity, spec: RLJobSpec, generation: int, earlier_path: str | None = None
    ) -> JobConfig:
        """Return job.json of a cluster generation."""
        return job_config(job, spec, generation, earlier_path)

    def losses(self, spec: RLJobSpec) -> tuple[str, ...]:
        """Return what a command loses."""
        return tuple(losses(spec))

    def class_defaults(self, spec: RLJobSpec) -> tuple[ClassDefault, ...]:
        """Return nothing: a command sets everything itself."""
        del spec
        return ()

    def memory_plan(self, spec: RLJobSpec, shape: Shape) -> Plan | None:
        """Return None: what a command keeps in a die's memory is not known."""
        del spec, shape
        return None

    def rollout_setup(self, spec: RLJobSpec, shape: Shape) -> Setup | None:
        """Return None: how a command generates is not known."""
        del spec, shape
        return None

    def layout_job(self, spec: RLJobSpec, shape: Shape) -> Job | None:
        """Return None: how a command is split is not known."""
        del spec, shape
        return None
