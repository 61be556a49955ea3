"""A command behind the protocol of the core."""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.launcher import ClassDefault
from rljob.launchers.command.checks import CHECKS, WARNINGS
from rljob.launchers.command.job import job_config
from rljob.launchers.command.losses import losses
from rljob.launchers.node_needs import CORE_BINDING
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig


class CommandLauncher:
    """Implements `rljob.core.launcher.Launcher`."""

    checks = CHECKS
    warnings = WARNINGS
    questions = (CORE_BINDING,)
    """The only decision that does not depend on a framework."""
    modules = ("rljob_runtime", "ray")
    """What the launcher needs; the modules of the command are not known."""

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
