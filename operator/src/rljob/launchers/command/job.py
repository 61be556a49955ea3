"""From launcher.command to the part of job.json that describes it."""

from __future__ import annotations

from dataclasses import replace

from rljob.api.launcher import Command
from rljob.api.launcher import CommandProgress as Progress
from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.job_config import common_config
from rljob.render.names import JobIdentity
from rljob_runtime.contract import JobConfig
from rljob_runtime.contract.command import CommandCheckpoint, CommandConfig, CommandMetric, CommandProgress


def job_config(job: JobIdentity, spec: RLJobSpec, generation: int, earlier_path: str | None = None) -> JobConfig:
    """Return job.json of a cluster generation. Raise AssertionError for a spec that was not checked."""
    command = spec.command
    if command is None:
        raise AssertionError("a spec without launcher.command is refused or belongs to another launcher")
    common = common_config(job, spec, generation, earlier_path)
    return replace(common, command=_command(command, spec))


def _command(command: Command, spec: RLJobSpec) -> CommandConfig:
    return CommandConfig(
        args=tuple(command.args),
        working_dir=command.working_dir,
        progress=_progress(command.progress) if command.progress else None,
        checkpoint=_checkpoint(command, spec),
        stop=command.stop.mode,
        stop_file=command.stop.file,
        stop_seconds=float(spec.stop.grace_seconds),
    )


def _progress(progress: Progress) -> CommandProgress:
    named = progress.metrics.model_dump(by_alias=True, exclude_none=True)
    return CommandProgress(
        source=progress.source,
        path=progress.path,
        pattern=progress.pattern,
        step_key=progress.step_key,
        metrics={CommandMetric(figure): key for figure, key in named.items()} or None,
    )


def _checkpoint(command: Command, spec: RLJobSpec) -> CommandCheckpoint | None:
    saved, folder = command.checkpoint, spec.checkpoint
    if saved is None or folder is None:
        return None
    return CommandCheckpoint(
        layout=saved.layout,
        pattern=saved.pattern,
        complete=saved.complete,
        resume_args=tuple(saved.resume_args),
        fence=saved.fence,
        keep=folder.keep,
    )
