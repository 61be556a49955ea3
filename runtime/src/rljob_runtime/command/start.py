"""Choose the step from which an attempt of a command starts, as checkpoints/resume.py does for other trainers.

The checkpoint folder is claimed by then. A step that is complete is taken as it is: which files belong to it, and how
many devices can load it, is known to the command only.
"""

from __future__ import annotations

import functools
from pathlib import Path

from rljob_runtime.checkpoints import claims, resume
from rljob_runtime.checkpoints.claims import Owner
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.command import attempt_folders
from rljob_runtime.command.attempt_folders import Saved
from rljob_runtime.contract import CommandCheckpoint, ExitCode, JobConfig, ResumeMode, ResumeSource
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.preflight import Attempt


def choose(job: JobConfig, attempt: Attempt) -> Start:
    """Return where an attempt starts. Raises RefusedError, FencedError and OSError as resume.choose does."""
    layout = job.command.checkpoint if job.command is not None else None
    if layout is None:
        return Start()
    own = Path(job.checkpoint_path) if job.checkpoint_path is not None else None
    fresh = job.resume is ResumeMode.NEVER and (own is None or not resume.begun(own, job))
    saved = attempt_folders.newest(own, layout) if own is not None and not fresh else None
    if own is not None and attempt.checkpoint_step is not None and saved is None:
        raise _refused(
            f"checkpoint.path {own} has no complete checkpoint of this job, which had saved step "
            f"{attempt.checkpoint_step} there: restore that folder; to start over, create the job again, or use "
            "another checkpoint.path",
            "CheckpointGone",
        )
    if fresh:
        return _start_over(own, job, layout, Owner.of(job, attempt.number)) if own is not None else Start()
    if saved is not None:
        return _resume(job, saved)
    if job.resume_from is not None:
        return _from_source(job, job.resume_from, layout)
    if job.resume is ResumeMode.REQUIRED:
        raise _refused(f"checkpoint.resume is Required, but {own} has no complete checkpoint of the command")
    return Start()


def _resume(job: JobConfig, saved: Saved) -> Start:
    if 0 < job.total_steps < saved.step:
        raise _refused(
            f"checkpoint.path has step {saved.step} in {saved.root}, which is beyond trainer.steps {job.total_steps}: "
            "another job has saved it; give this one a checkpoint.path of its own, or set trainer.steps to "
            f"{saved.step} or more",
            "CheckpointBeyondEnd",
        )
    return Start(saved.path, saved.step, f"the run resumes from step {saved.step} in {saved.root}")


def _from_source(job: JobConfig, source: ResumeSource, layout: CommandCheckpoint) -> Start:
    steps = attempt_folders.complete_steps(Path(source.path), layout)
    saved = next((saved for saved in steps if source.step in (None, saved.step)), None)
    if saved is None:
        which = "checkpoint" if source.step is None else f"step {source.step}"
        raise _refused(f"checkpoint.from: {source.path} has no complete {which} in the layout of the command")
    if 0 < job.total_steps <= saved.step:
        raise _refused(
            f"checkpoint.from: step {saved.step} is not before trainer.steps {job.total_steps}; set trainer.steps "
            f"beyond {saved.step}"
        )
    return Start(saved.path, saved.step, f"the run starts from step {saved.step} of {saved.root}")


def _start_over(folder: Path, job: JobConfig, layout: CommandCheckpoint, owner: Owner) -> Start:
    """Set all steps aside, complete or not, and record that those that follow belong to this job."""
    steps = attempt_folders.steps_in(folder, layout)
    tops = {folder / saved.path.relative_to(folder).parts[0] for saved in steps}
    check_owner = functools.partial(claims.check, folder, owner)
    name = f"{job.cluster_name}-attempt-{owner.attempt}"
    aside = resume.set_aside(folder, name, check_owner, {*attempt_folders.attempt_folders(folder), *tops})
    claims.begin(folder, owner)
    return Start(message=f"the run starts at step 0; earlier steps are now in {aside}") if aside else Start()


def _refused(message: str, reason: str = "CheckpointMissing") -> RefusedError:
    return RefusedError(ExitCode.BAD_CONFIG, reason, message)
