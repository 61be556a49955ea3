"""Choose where an attempt starts: its job's last complete checkpoint, otherwise `checkpoint.from`, otherwise step 0.

The launcher chooses once it has claimed the checkpoint folder, and passes verl an explicit path: verl's own search
would follow a tracker file that a crash can damage. A step that lost a part, or was saved without what the run loads,
is skipped. With `Never`, a job's first attempt sets earlier steps aside, so that every `global_step_<n>` in the folder
belongs to this job; nothing is deleted. A job whose saved steps are gone is refused instead of silently starting again.
A launcher that was paused here, and resumes when the folder has another owner, changes nothing there.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from rljob_runtime.checkpoints import claims, contents, prompt_ledger, saved_steps
from rljob_runtime.checkpoints.claims import Owner
from rljob_runtime.checkpoints.saved_steps import step_folder
from rljob_runtime.contract import ExitCode, JobConfig, ResumeMode, ResumeSource, Role, TrainerMode
from rljob_runtime.outcomes import RefusedError, StartGoneError
from rljob_runtime.preflight import Attempt

SHOWN_STEPS = 8
"""Maximum number of steps listed in a message."""
SHOWN_SHARDS = 4
"""Maximum number of files of a step listed in a message."""


@dataclass(frozen=True)
class Start:
    """Where an attempt starts."""

    folder: Path | None = None
    """`.../global_step_<n>`; None for step 0."""
    step: int = 0
    message: str = "the run starts at step 0"
    """For the log."""


@dataclass(frozen=True)
class Loader:
    """What the attempt loads from a step, which determines the steps it can resume from."""

    devices: int
    """FSDP loads the files of exactly this number of devices."""
    loads: Mapping[str, frozenset[str]]
    """By the folder of each role that the algorithm trains."""
    prompts: bool = True
    """Whether prompts in flight are resumed; an evaluation needs the weights only."""

    def problem_of(self, made: Path) -> str | None:
        """Return why a step cannot be resumed, phrased to follow "step N"; None if it can."""
        if lacking := list(contents.lacking(made, self.loads)):
            return f"was saved without {' and '.join(lacking)}"
        broken = saved_steps.broken_shards(made, self.devices)
        more = f" and {len(broken) - SHOWN_SHARDS} more" if len(broken) > SHOWN_SHARDS else ""
        if broken:
            return f"has missing or truncated files: {', '.join(broken[:SHOWN_SHARDS])}{more}"
        return prompt_ledger.problem_of(made) if self.prompts else None


def choose(job: JobConfig, attempt: Attempt, loads: Mapping[str, frozenset[str]], *, only_evaluates: bool) -> Start:
    """Choose the step to start from; `loads` is what the trainer loads (`Trainer.loads`).

    Raises RefusedError (exit 64) if the folders do not contain what the manifest requires, FencedError if the job's
    folder has another owner by now, and OSError (exit 1, another attempt) for a volume that cannot be read.
    """
    own = Path(job.checkpoint_path) if job.checkpoint_path else None
    if own is not None and attempt.checkpoint_step is not None:
        _check_kept(own, job, attempt.checkpoint_step)
    owner = Owner.of(job, attempt.number)
    if job.resume is ResumeMode.NEVER and (own is None or not begun(own, job)):
        return _start_over(own, job, owner) if own else Start()
    loader = Loader(job.devices_of(Role.TRAINER), loads, prompts=not only_evaluates)
    step = _own_step(own, owner, loader) if own else None
    if own is not None and step is not None:
        if not only_evaluates:
            _check_end(own, job, step)
        start = Start(step_folder(own, step), step, f"the run resumes from step {step} in {own}")
    elif job.resume_from is not None:
        start = _from_source(job.resume_from, job, loader, only_evaluates=only_evaluates)
    elif job.resume is ResumeMode.REQUIRED:
        raise _refused(f"checkpoint.resume is Required, but {own} has no complete checkpoint (global_step_<n>)")
    else:
        return Start()
    if start.folder is not None:
        check_topology(start.folder, job.devices_of(Role.TRAINER))
        check_critic(start.folder, needs_critic=saved_steps.CRITIC_FOLDER in loads)
        check_contents(start.folder, loads)
        if not only_evaluates:
            check_prompts(start.folder, job.mode, own=step is not None)
    return start


def _own_step(folder: Path, owner: Owner, loader: Loader) -> int | None:
    """Return the step to resume from, and make the tracker name it; None if nothing was saved."""
    first = saved_steps.step_to_resume(folder)
    if first is None:
        _retire_tracker(folder, functools.partial(claims.check, folder, owner))
        return None
    step = _newest_whole(folder, first, loader, "checkpoint.path", "CheckpointGone")
    if step != saved_steps.tracked_step(folder):
        claims.publish(folder, owner, step)
    return step


def _newest_whole(folder: Path, first: int, loader: Loader, field: str, reason: str) -> int:
    """Return the first step that can be resumed, and report those that cannot. Nothing is deleted.

    Otherwise every attempt would fail to load the same step, although an older step is whole.
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
    """Yield the preferred step, and then the other complete steps, newest first.

    Later steps come last: if the tracker was set back by hand, the user does not want them.
    """
    yield first
    steps = saved_steps.complete_steps(folder)
    yield from (step for step in reversed(steps) if step < first)
    yield from (step for step in reversed(steps) if step > first)


def _check_kept(folder: Path, job: JobConfig, saved_step: int) -> None:
    """Refuse a folder that has lost what the job saved. Another volume may be mounted there."""
    if saved_steps.holds_complete(folder) and (job.resume is not ResumeMode.NEVER or begun(folder, job)):
        return
    raise _refused(
        f"checkpoint.path {folder} has no complete checkpoint of this job, which had saved step {saved_step} there: "
        "restore that folder; to start over, create the job again, or use another checkpoint.path",
        "CheckpointGone",
    )


def _check_end(folder: Path, job: JobConfig, step: int) -> None:
    """Refuse a step beyond the last one. trainer.steps may only grow, so another job has saved it."""
    if step > job.total_steps:
        raise _refused(
            f"checkpoint.path {folder} has step {step}, which is beyond trainer.steps {job.total_steps}: another job "
            f"has saved it; give this one a checkpoint.path of its own, or set trainer.steps to {step} or more",
            "CheckpointBeyondEnd",
        )


def begun(folder: Path, job: JobConfig) -> bool:
    """Return whether the folder's steps belong to this job, so that a restart resumes from them even with `Never`."""
    try:
        return (folder / saved_steps.BEGUN_FILE).read_text() == job.uid
    except FileNotFoundError:
        return False


def _start_over(folder: Path, job: JobConfig, owner: Owner) -> Start:
    name = f"{job.cluster_name}-attempt-{owner.attempt}"
    check_owner = functools.partial(claims.check, folder, owner)
    try:
        aside = set_aside(folder, name, check_owner)
    except FileNotFoundError:
        check_owner()
        raise
    # Last: after a crash before this line, the next attempt must not take an earlier job's steps for its own.
    claims.begin(folder, owner)
    return Start(message=f"the run starts at step 0; earlier steps are now in {aside}") if aside else Start()


def set_aside(
    folder: Path, name: str, check_owner: Callable[[], None], entries: Iterable[Path] | None = None
) -> Path | None:
    """Move the steps of an earlier run and verl's tracker into a folder beside them; return None if there are none.

    This includes steps whose move was interrupted in an earlier attempt. `entries` are the folder's entries that hold
    steps; by default those that verl has saved.
    """
    steps = sorted(folder.iterdir() if entries is None else entries)
    steps = steps if entries is not None else [one for one in steps if saved_steps.STEP_FOLDER.match(one.name)]
    if steps:
        # The tracker first: after a crash in between, no attempt resumes from the remaining steps by mistake.
        for entry in (folder / saved_steps.TRACKER_FILE, *steps):
            saved_steps.move_away(entry, saved_steps.ASIDE, check_owner)
    else:
        _retire_tracker(folder, check_owner)
    taken = sorted(folder.glob(f"{saved_steps.ASIDE}*/*"))
    if not taken:
        return None
    aside = folder / f"set-aside-by-{name}"
    aside.mkdir(exist_ok=True)
    for entry in taken:
        # Two interrupted attempts may each have left the same step.
        named = aside / entry.name
        entry.rename(named.with_name(entry.name + entry.parent.name) if named.exists() else named)
        with contextlib.suppress(OSError):
            entry.parent.rmdir()
    return aside


def _retire_tracker(folder: Path, check_owner: Callable[[], None]) -> None:
    """Move away a tracker that names no existing step. The run may reach that number and would consider it saved."""
    saved_steps.move_away(folder / saved_steps.TRACKER_FILE, saved_steps.RETIRED, check_owner)


@contextlib.contextmanager
def loading(folder: Path | None) -> Iterator[None]:
    """Raise StartGoneError if a step disappears or is truncated while verl loads it.

    The step may belong to another job, which deletes steps beyond its `checkpoint.keep`. If verl finds no mark, it logs
    it and starts again from the first prompts (trainer_base.py, _load_checkpoint, 0.9.1).
    """
    try:
        yield
    finally:
        if folder is not None and not saved_steps.is_complete(folder):
            raise StartGoneError(
                f"{folder} disappeared while the run loaded it; the next attempt chooses another start"
            )


def check_topology(folder: Path, devices: int) -> None:
    """Refuse an FSDP checkpoint of another number of devices: each rank can load only its own shard.

    Megatron checkpoints have no such files and can be loaded with another topology.
    """
    actor = folder / saved_steps.MODEL_FOLDER
    sizes = sorted({ranks for kind, ranks in saved_steps.shards(actor) if kind == "model"})
    if sizes and devices not in sizes:
        written = " and ".join(str(size) for size in sizes)
        raise _refused(
            f"{actor} was written by {written} devices, but this job has {devices}: FSDP can load it only with the "
            f"same number; set workerGroups to {sizes[-1]} devices, or convert it into a model for model.path "
            "(initializers[].conversion, format Checkpoint)",
            "CheckpointTopology",
        )


def check_critic(folder: Path, *, needs_critic: bool) -> None:
    """Refuse a checkpoint without a critic for an algorithm that has one."""
    if needs_critic and not (folder / saved_steps.CRITIC_FOLDER).is_dir():
        raise _refused(
            f"{folder} has no critic, but algorithm.name PPO resumes one; start from a checkpoint of a PPO job, or set "
            "model.path to the merged actor and remove checkpoint.from",
            "CheckpointWithoutCritic",
        )


def check_contents(folder: Path, loads: Mapping[str, frozenset[str]]) -> None:
    """Refuse a step that was saved without a part that the run would load."""
    if lacking := list(contents.lacking(folder, loads)):
        raise _refused(
            f"{folder} was saved without {' and '.join(lacking)}, which the run would load; start from another step "
            "or folder. If the model is there, verl.overrides "
            f'{contents.LOAD_KEY}: ["{contents.MODEL}"] (and the '
            "critic's) loads only the weights",
            "CheckpointIncomplete",
        )


def check_prompts(folder: Path, mode: TrainerMode, *, own: bool) -> None:
    """Refuse a step whose prompts in flight are broken, or that this job saved in the other kind of mode.

    One kind has prompts in flight, and they count the data differently. A job that starts from another job's step
    begins with the data's first prompts instead (sync_trainer.py and prompt_loader.py of the plug-in).
    """
    if (problem := prompt_ledger.problem_of(folder)) is not None:
        raise _refused(f"{folder} {problem}; start from another step", "CheckpointIncomplete")
    is_sync = not prompt_ledger.has_ledger(folder)
    if not own or is_sync == (mode is TrainerMode.SYNC):
        return
    if is_sync:
        seen = f"was saved by trainer.mode Sync, and {mode.value} counts the data differently"
    else:
        seen = f"has {len(prompt_ledger.read(folder).in_flight)} prompts in flight, which trainer.mode Sync would skip"
    raise _refused(
        f"{folder} {seen}; keep the mode, or start another job from this step with checkpoint.from, which begins with "
        "the first prompts of data.train again",
        "CheckpointMode",
    )


def _from_source(source: ResumeSource, job: JobConfig, loader: Loader, *, only_evaluates: bool) -> Start:
    folder = Path(source.path)
    steps = saved_steps.complete_steps(folder)
    there = ", ".join(str(step) for step in steps[-SHOWN_STEPS:])
    there = f"the {'last ' if len(steps) > SHOWN_STEPS else ''}complete steps are {there}"
    if not steps:
        what = "is not a folder of this pod" if not folder.is_dir() else "has no complete checkpoint (global_step_<n>)"
        raise _refused(f"checkpoint.from: {folder} {what}")
    step = source.step or _source_step(folder, steps, loader)
    if step not in steps:
        raise _refused(f"checkpoint.from.step: {folder} has no complete step {step}; {there}")
    if step >= job.total_steps and not only_evaluates:
        raise _refused(
            f"checkpoint.from: step {step} is not before trainer.steps {job.total_steps}, and verl continues counting "
            f"from there; set trainer.steps beyond {step}"
        )
    return Start(step_folder(folder, step), step, f"the run starts from step {step} of {folder}")


def _source_step(folder: Path, steps: list[int], loader: Loader) -> int:
    """Return the step that the source's tracker names, otherwise its newest one, among those that can be resumed."""
    tracked = saved_steps.tracked_step(folder)
    first = tracked if tracked in steps else steps[-1]
    return _newest_whole(folder, first, loader, "checkpoint.from", "CheckpointMissing")


def _refused(message: str, reason: str = "CheckpointMissing") -> RefusedError:
    return RefusedError(ExitCode.BAD_CONFIG, reason, message)
