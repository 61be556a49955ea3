"""Where an attempt begins: at the job's own last complete checkpoint, else at `checkpoint.from`, else at step 0.

The launcher asks once it alone may write into the checkpoint folder, and hands verl an explicit path: verl's own search
would follow a tracker file that a crash can damage. A step that lost a part, or was saved without what the run loads,
is skipped. With `Never`, a job's first attempt sets earlier steps aside, so that every `global_step_<n>` of the folder
belongs to this job; nothing is deleted.
A job that had saved something does not begin anew in silence because it is gone. A launcher that was frozen here, and
comes back when the folder is somebody else's, changes nothing there.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime import checkpoint, claims, contents
from rljob_runtime.checkpoint import step_folder
from rljob_runtime.claims import Owner
from rljob_runtime.contract import ExitCode, JobConfig, ResumeMode, ResumeSource
from rljob_runtime.outcomes import RefusedError, StartGoneError
from rljob_runtime.preflight import Attempt

SHOWN_STEPS = 8
"""Steps that a message lists at most."""
SHOWN_SHARDS = 4
"""Files of a step that a message lists at most."""


@dataclass(frozen=True)
class Start:
    """Where an attempt begins."""

    folder: Path | None = None
    """`.../global_step_<n>`; None: step 0."""
    step: int = 0
    told: str = "the run begins at step 0"
    """For the log."""


@dataclass(frozen=True)
class Loader:
    """What the attempt loads from a step, to tell which steps it can resume from."""

    devices: int
    """FSDP loads the files of exactly as many devices."""
    loads: Mapping[str, frozenset[str]]
    """By the folder of each role that the algorithm trains."""

    def problem_of(self, made: Path) -> str | None:
        """Return why a step cannot be resumed, as the rest of a sentence; None if it can."""
        if lacking := list(contents.lacking(made, self.loads)):
            return f"was saved without {' and '.join(lacking)}"
        broken = checkpoint.broken_shards(made, self.devices)
        more = f" and {len(broken) - SHOWN_SHARDS} more" if len(broken) > SHOWN_SHARDS else ""
        return f"has missing or truncated files: {', '.join(broken[:SHOWN_SHARDS])}{more}" if broken else None


def choose(job: JobConfig, attempt: Attempt, loads: Mapping[str, frozenset[str]], *, only_evaluates: bool) -> Start:
    """Choose the step to start from; `loads` is what the trainer loads (`Trainer.loads`).

    Raises RefusedError (exit 64) if the folders do not hold what the manifest asks for, FencedError if another attempt
    or job owns the job's folder by now, and OSError (exit 1, another attempt) for a volume that cannot be read.
    """
    own = Path(job.checkpoint_path) if job.checkpoint_path else None
    if own is not None and attempt.checkpoint_step is not None:
        _check_kept(own, job, attempt.checkpoint_step)
    owner = Owner.of(job, attempt.number)
    if job.resume is ResumeMode.NEVER and (own is None or not _begun(own, job)):
        return _begin_anew(own, job, owner) if own else Start()
    loader = Loader(job.devices, loads)
    step = _own_step(own, owner, loader) if own else None
    if own is not None and step is not None:
        if not only_evaluates:
            _check_end(own, job, step)
        start = Start(step_folder(own, step), step, f"the run goes on from step {step} in {own}")
    elif job.resume_from is not None:
        start = _from_source(job.resume_from, job, loader, only_evaluates=only_evaluates)
    elif job.resume is ResumeMode.REQUIRED:
        raise _refused(f"checkpoint.resume is Required, but {own} holds no complete checkpoint (global_step_<n>)")
    else:
        return Start()
    if start.folder is not None:
        check_topology(start.folder, job.devices)
        check_critic(start.folder, needs_critic=checkpoint.CRITIC_FOLDER in loads)
        check_contents(start.folder, loads)
    return start


def _own_step(folder: Path, owner: Owner, loader: Loader) -> int | None:
    """Return the step to resume from, and make the tracker name it; None if nothing was saved."""
    first = checkpoint.step_to_resume(folder)
    if first is None:
        _retire_tracker(folder, functools.partial(claims.check, folder, owner))
        return None
    step = _newest_whole(folder, first, loader, "checkpoint.path", "CheckpointGone")
    if step != checkpoint.tracked_step(folder):
        claims.publish(folder, owner, step)
    return step


def _newest_whole(folder: Path, first: int, loader: Loader, field: str, reason: str) -> int:
    """Return the first step that can be resumed, and report those that cannot; nothing is deleted.

    Without it every attempt would fail while it loads the same step, although an older one is whole.
    """
    problems = []
    for step in _candidates(folder, first):
        problem = loader.problem_of(step_folder(folder, step))
        if problem is None:
            return step
        problems.append(f"step {step} {problem}")
        print(f"rljob: {folder}: {problems[-1]}; it is skipped", file=sys.stderr, flush=True)  # noqa: T201
    check_contents(step_folder(folder, first), loader.loads)
    raise _refused(
        f"{field}: no step of {folder} is whole: {problems[0]}; restore the files, or start from another folder", reason
    )


def _candidates(folder: Path, first: int) -> Iterator[int]:
    """Give the step to begin from, and then the other complete ones, the newest first.

    Those beyond it come last: where the tracker was set back by hand, they are what somebody did not want.
    """
    yield first
    steps = checkpoint.complete_steps(folder)
    yield from (step for step in reversed(steps) if step < first)
    yield from (step for step in reversed(steps) if step > first)


def _check_kept(folder: Path, job: JobConfig, saved_step: int) -> None:
    """Refuse a folder that has lost what the job saved: another volume may be mounted in its place."""
    if checkpoint.holds_complete(folder) and (job.resume is not ResumeMode.NEVER or _begun(folder, job)):
        return
    raise _refused(
        f"checkpoint.path {folder} holds no complete checkpoint of this job, which had saved step {saved_step} there: "
        "bring that folder back; to start over, create the job anew, or with another checkpoint.path",
        "CheckpointGone",
    )


def _check_end(folder: Path, job: JobConfig, step: int) -> None:
    """Refuse a step beyond the last one: trainer.steps may only grow, so another job has saved it."""
    if step > job.total_steps:
        raise _refused(
            f"checkpoint.path {folder} holds step {step}, which is beyond trainer.steps {job.total_steps}: another job "
            f"has saved it; give this one a checkpoint.path of its own, or set trainer.steps to {step} or more",
            "CheckpointBeyondEnd",
        )


def _begun(folder: Path, job: JobConfig) -> bool:
    """Tell whether what the folder holds is this job's own: a restart goes on from there, whatever was before it."""
    try:
        return (folder / checkpoint.BEGUN_FILE).read_text() == job.uid
    except FileNotFoundError:
        return False


def _begin_anew(folder: Path, job: JobConfig, owner: Owner) -> Start:
    name = f"{job.cluster_name}-attempt-{owner.attempt}"
    check_owner = functools.partial(claims.check, folder, owner)
    try:
        aside = set_aside(folder, name, check_owner)
    except FileNotFoundError:
        check_owner()
        raise
    # Last, or a crash before it would let the next attempt take an earlier job's steps for its own.
    claims.begin(folder, owner)
    return Start(told=f"the run begins at step 0; earlier steps are now in {aside}") if aside else Start()


def set_aside(folder: Path, name: str, check_owner: Callable[[], None]) -> Path | None:
    """Move the steps of an earlier run, and verl's tracker, into a folder beside them; None if there are none.

    What an attempt that ended in between has left on its way goes with them.
    """
    steps = [entry for entry in sorted(folder.iterdir()) if checkpoint.STEP_FOLDER.match(entry.name)]
    if steps:
        # The tracker first: without it a crash in between leaves steps that nobody resumes from by mistake.
        for entry in (folder / checkpoint.TRACKER_FILE, *steps):
            checkpoint.take_away(entry, checkpoint.ASIDE, check_owner)
    else:
        _retire_tracker(folder, check_owner)
    taken = sorted(folder.glob(f"{checkpoint.ASIDE}*/*"))
    if not taken:
        return None
    aside = folder / f"set-aside-by-{name}"
    aside.mkdir(exist_ok=True)
    for entry in taken:
        # Of two attempts that ended in between, each may have left the same step.
        named = aside / entry.name
        entry.rename(named.with_name(entry.name + entry.parent.name) if named.exists() else named)
        with contextlib.suppress(OSError):
            entry.parent.rmdir()
    return aside


def _retire_tracker(folder: Path, check_owner: Callable[[], None]) -> None:
    """Take away a tracker that names no step: the run may come to that number, and would take it for saved."""
    checkpoint.take_away(folder / checkpoint.TRACKER_FILE, checkpoint.RETIRED, check_owner)


@contextlib.contextmanager
def loading(folder: Path | None) -> Iterator[None]:
    """Raise StartGoneError for a step that goes, or is cut off, while verl loads it.

    It may be another job's, which deletes it beyond its `checkpoint.keep`. And where verl finds no mark, it says so in
    the log and begins with the first prompts again (trainer_base.py, _load_checkpoint, 0.9.1).
    """
    try:
        yield
    finally:
        if folder is not None and not checkpoint.is_complete(folder):
            raise StartGoneError(f"{folder} went while the run loaded it; the next attempt chooses its beginning anew")


def check_topology(folder: Path, devices: int) -> None:
    """Refuse a checkpoint of FSDP that another number of devices has written: each rank can only load its own part.

    Checkpoints of Megatron hold no such files; they can be loaded by another topology.
    """
    actor = folder / checkpoint.MODEL_FOLDER
    sizes = sorted({ranks for kind, ranks in checkpoint.shards(actor) if kind == "model"})
    if sizes and devices not in sizes:
        written = " and ".join(str(size) for size in sizes)
        raise _refused(
            f"{actor} was written by {written} devices, this job has {devices}: FSDP can only load it with the same "
            f"number; set workerGroups to {sizes[-1]} devices, or merge it with verl.model_merger into a model for "
            "model.path",
            "CheckpointTopology",
        )


def check_critic(folder: Path, *, needs_critic: bool) -> None:
    """Refuse a checkpoint without critic for an algorithm that has one."""
    if needs_critic and not (folder / checkpoint.CRITIC_FOLDER).is_dir():
        raise _refused(
            f"{folder} holds no critic, but algorithm.name PPO resumes one; begin from a checkpoint of a PPO job, or "
            "set model.path to the merged actor and leave checkpoint.from out",
            "CheckpointWithoutCritic",
        )


def check_contents(folder: Path, loads: Mapping[str, frozenset[str]]) -> None:
    """Refuse a step that was saved without the model or the optimizer that the run would load."""
    if lacking := list(contents.lacking(folder, loads)):
        raise _refused(
            f"{folder} was saved without {' and '.join(lacking)}, which the run would load; start from another step "
            "or folder. Where only the optimizer is missing, verl.overrides "
            f'{contents.LOAD_KEY}: ["{contents.MODEL}"] (and the '
            "critic's) loads the weights alone",
            "CheckpointIncomplete",
        )


def _from_source(source: ResumeSource, job: JobConfig, loader: Loader, *, only_evaluates: bool) -> Start:
    folder = Path(source.path)
    steps = checkpoint.complete_steps(folder)
    there = ", ".join(str(step) for step in steps[-SHOWN_STEPS:])
    there = f"the {'last ' if len(steps) > SHOWN_STEPS else ''}complete steps are {there}"
    if not steps:
        what = (
            "is not a folder of this pod" if not folder.is_dir() else "holds no complete checkpoint (global_step_<n>)"
        )
        raise _refused(f"checkpoint.from: {folder} {what}")
    step = source.step or _source_step(folder, steps, loader)
    if step not in steps:
        raise _refused(f"checkpoint.from.step: {folder} has no complete step {step}; {there}")
    if step >= job.total_steps and not only_evaluates:
        raise _refused(
            f"checkpoint.from: step {step} is not before trainer.steps {job.total_steps}, and verl counts on from "
            f"there; set trainer.steps beyond {step}"
        )
    return Start(step_folder(folder, step), step, f"the run begins with step {step} of {folder}")


def _source_step(folder: Path, steps: list[int], loader: Loader) -> int:
    """Return the step that the source's tracker names, else its newest one, of those that can be resumed."""
    tracked = checkpoint.tracked_step(folder)
    first = tracked if tracked in steps else steps[-1]
    return _newest_whole(folder, first, loader, "checkpoint.from", "CheckpointMissing")


def _refused(message: str, reason: str = "CheckpointMissing") -> RefusedError:
    return RefusedError(ExitCode.BAD_CONFIG, reason, message)
