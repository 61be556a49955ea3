"""`python -m rljob_runtime launch`: the entrypoint of the Ray job, run on the head pod for one attempt.

Checks its pod and job.json, lets the image's trainer (trainer.py) compose its configuration, waits for the cluster,
claims the checkpoints and trains. In every case, the last line of output is a JSON `Outcome`, the spool contains the
same, and the exit code shows whether another attempt can help.
"""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rljob_runtime import preflight, ray_cluster, trackers, trainer
from rljob_runtime.checkpoints import resume
from rljob_runtime.checkpoints.claims import Keeper, Lease, Owner, claim
from rljob_runtime.collection import after_failure
from rljob_runtime.command import start as command_start
from rljob_runtime.command.process import CommandFailedError
from rljob_runtime.contract import (
    COLLECT_SECONDS,
    ContractError,
    ExitCode,
    JobConfig,
    Outcome,
    Phase,
    Progress,
    StartStage,
    StopMode,
    StopRequest,
)
from rljob_runtime.files import run_with_timeout
from rljob_runtime.losses import Losses
from rljob_runtime.node import core_binding
from rljob_runtime.node_checks import preflight as node_work
from rljob_runtime.outcomes import FencedError, RefusedError, Verdict, from_error
from rljob_runtime.spool import log_rules, step_metrics
from rljob_runtime.spool.mirror import Mirror, own_log
from rljob_runtime.spool.spool import Spool
from rljob_runtime.spool.start_report import StartReport
from rljob_runtime.stacks import register as stack_register
from rljob_runtime.stacks import stall
from rljob_runtime.trainer import Result, Setup, Trainer

SHUTDOWN_SECONDS = 20.0
"""Disconnecting from Ray may hang if parts of the cluster are gone, but the outcome must be printed."""
KEEP_LOGS_SECONDS = 5.0
LEAVE_SECONDS = COLLECT_SECONDS + 3 * KEEP_LOGS_SECONDS
"""Time for the thread with the final outcome to collect logs, copy the driver's own log and end the process."""
HARD_STOP_POLL_SECONDS = 1.0


@dataclass(frozen=True)
class Patience:
    """How long to wait for the cluster."""

    devices_seconds: float = 300.0
    predecessor_seconds: float = 60.0
    claim: Lease = field(default_factory=Lease)
    """For the claim on the checkpoint folder."""


@dataclass(frozen=True)
class Launch:
    """One attempt that passed the identity checks."""

    attempt: preflight.Attempt
    job: JobConfig
    spool: Spool
    patience: Patience
    mirror: Mirror
    trainer: Trainer
    nodes: dict[str, str] = field(default_factory=dict)
    """Nodes of the run with devices, once they have joined: Ray's node id -> address."""
    names: dict[str, str] = field(default_factory=dict)
    """Names of the Kubernetes nodes, by address."""
    verdict: Verdict = field(default_factory=Verdict)

    @cached_property
    def keeper(self) -> Keeper | None:
        """Renews the claim on the checkpoint folder; None for a job without one."""
        if self.job.checkpoint_path is None:
            return None
        folder, lease = Path(self.job.checkpoint_path), self.patience.claim
        return Keeper(folder, self.owner, lease, lambda error: leave_fenced(self, error))

    @cached_property
    def losses(self) -> Losses:
        """Notices lost nodes and processes."""
        return Losses(self.nodes, self.names, lambda: self.trainer.actor_id)

    @cached_property
    def start(self) -> StartReport:
        """Reports what the start is doing."""
        return StartReport(self.spool, self.attempt.number)

    @property
    def owner(self) -> Owner:
        """The owner with which this attempt claims the checkpoint folder."""
        return Owner.of(self.job, self.attempt.number)

    @property
    def run_name(self) -> str:
        """Name of the attempt's files on every node: stacks, CPU plan."""
        return stack_register.run_name(self.job, self.attempt.number)

    @property
    def scratch(self) -> Path:
        """Folder of the attempt's temporary files."""
        return self.spool.attempt_folder(self.attempt.number)


@dataclass(frozen=True)
class Ending:
    """The outcome of an attempt, and its log volume."""

    outcome: Outcome
    mirror: Mirror | None = None


def launch(environ: Mapping[str, str], patience: Patience) -> Ending:
    """Run one attempt and return its ending. Never raises."""
    spool: Spool | None = None
    job: JobConfig | None = None
    mirror: Mirror | None = None
    try:
        attempt = preflight.read_attempt(environ)
        job = preflight.read_job(environ)
        preflight.require_tokens(environ)
        trains = trainer.load(job)
        spool = Spool(attempt.spool)
        with ray_cluster.head_lock(spool.root, patience.predecessor_seconds):
            mirror = Mirror(job, attempt.number)
            return run_alone(Launch(attempt, job, spool, patience, mirror, trains), environ)
    except BaseException as error:  # noqa: BLE001 - the operator must learn of any failure
        # Without the lock, spool and log volume belong to another launcher.
        return Ending(failed(error, job, spool), mirror)


def run_alone(launch: Launch, environ: Mapping[str, str]) -> Ending:
    """Run as the head's only launcher. The outcome is published before the lock is released."""
    try:
        begin(launch)
        launch.mirror.follow(own_log())
        outcome = run_claimed(launch, environ)
    except BaseException as error:  # noqa: BLE001 - any exception becomes the outcome
        outcome = failed(error, launch.job, launch.spool)
    return Ending(end(launch, outcome), launch.mirror)


def failed(error: BaseException, job: JobConfig | None, spool: Spool | None) -> Outcome:
    """Return the outcome of an attempt that raised, with the matching restart rule."""
    outcome = from_error(error, last_step=step_in(spool) if spool else 0, disk=spool.root if spool else None)
    with contextlib.suppress(OSError):  # from a full disk, which accepts no output
        # What a refusal and a failed command say does not depend on where the launcher noticed it.
        if not isinstance(error, RefusedError | CommandFailedError):
            traceback.print_exception(error)
        if job is not None:
            sys.stdout.flush()
            outcome = log_rules.apply_rules(outcome, job.log_rules, own_log())
    return outcome


def begin(launch: Launch) -> None:
    """Publish that the attempt has started."""
    spool, attempt = launch.spool, launch.attempt
    spool.open_attempt(attempt.number)
    for file in (spool.rollout_targets_file, spool.queue_target_file):
        file.unlink(missing_ok=True)
    now = time.time()
    spool.write_progress(
        Progress(
            pod_uid=attempt.pod_uid,
            phase=Phase.STARTING,
            attempt=attempt.number,
            submission_id=attempt.submission_id,
            total_steps=0 if launch.trainer.only_evaluates(launch.job) else launch.job.total_steps,
            observed_time=now,
            start_time=now,
        )
    )
    launch.start.at(StartStage.PREPARING)


def end(launch: Launch, outcome: Outcome) -> Outcome:
    """Collect the logs of a failure, publish that the attempt has ended, and return the outcome with their place.

    A failing spool does not affect the last line of output. A second caller changes nothing: the thread that called
    first is about to end the process.
    """
    final = launch.verdict.settle(outcome)
    if final is not outcome:
        time.sleep(LEAVE_SECONDS)
        os._exit(final.exit_code)
    if after_failure.is_due(launch.job, outcome):
        outcome = after_failure.collect(outcome)
    try:
        launch.spool.update_progress(phase=Phase.ENDED, outcome=outcome)
    except (OSError, ContractError) as error:
        message = f"rljob: cannot write the outcome {outcome.reason} to the spool: {error}"
        with contextlib.suppress(OSError):
            print(message, file=sys.stderr, flush=True)  # noqa: T201
    return outcome


def run_claimed(launch: Launch, environ: Mapping[str, str]) -> Outcome:
    """Run, and release the claim on the checkpoint folder if no process can still be writing to it."""
    clean = True
    try:
        return run(launch, environ)
    except BaseException as error:
        # A refusal comes before any process of the run has started.
        clean = isinstance(error, RefusedError)
        raise
    finally:
        if launch.keeper is not None:
            launch.keeper.stop(clean=clean)


def leave_fenced(launch: Launch, error: FencedError) -> NoReturn:
    """End the process, because the checkpoint folder has another owner. Ray then ends every actor of the driver."""
    leave_early(launch, from_error(error, last_step=step_of(launch)))


def run(launch: Launch, environ: Mapping[str, str]) -> Outcome:
    """Run the attempt: compose, check, wait for the cluster, train."""
    install_stop_handlers(launch)
    log_rules.require_patterns(launch.job)
    trackers.require_packages(launch.job)
    variables = environment(launch, environ)
    os.environ.update(variables)
    stack_register.register()
    launch.trainer.prepare(Setup(launch.job, launch.attempt.number, launch.spool, launch.scratch, variables))
    refuse_if_stopped(launch)
    launch.start.at(StartStage.CONNECTING)

    with contextlib.ExitStack() as stack:
        stack.callback(shut_down_ray)
        try:
            result = launch.trainer.run(functools.partial(prepare_cluster, launch))
        except RefusedError:
            raise
        except Exception as error:
            launch.losses.blame(error)
            raise
        return outcome_of(launch, result)


def environment(launch: Launch, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that every process of the run needs; the pod's values take precedence."""
    bound = {core_binding.VARIABLE: launch.run_name} if launch.job.core_binding else {}
    return {
        **{name: environ.get(name, value) for name, value in bound.items()},
        **launch.trainer.environment(launch.job, environ),
        **trackers.environment(launch.job, launch.spool.root, environ),
        stack_register.VARIABLE: launch.run_name,
    }


def outcome_of(launch: Launch, result: Result) -> Outcome:
    """Return the outcome of a run that ended by itself."""
    if result.matched is not None:
        return result.matched.outcome(saved_step(launch))
    if result.stopped_by is not None:
        return stopped(launch, result.step, result.stopped_by, result.abandoned_step)
    if result.evaluation is not None:
        score = result.evaluation.get(step_metrics.VALIDATION_SCORE, float("nan"))
        # Without a checkpoint to load, as in the evaluations of another job's checkpoints, the run is at step 0.
        what = f"the checkpoint of step {result.step}" if result.step else "the model"
        message = f"evaluated {what} on data.validation: mean score {score:.6g}"
        return Outcome(int(ExitCode.DONE), "Evaluated", message, last_step=result.step)
    return Outcome(int(ExitCode.DONE), "Completed", f"trained {result.step} steps", last_step=result.step)


def prepare_cluster(launch: Launch) -> None:
    """Check and reserve the cluster after connecting to Ray, before any process of the run exists."""
    # ray.init installs its own SIGTERM handler, which aborts.
    install_stop_handlers(launch, connected=True)
    start, job = launch.start, launch.job
    ray_cluster.wait_for_nodes(
        job, launch.patience.devices_seconds, lambda now: start.at(StartStage.WAITING_FOR_NODES, now, job.nodes)
    )
    start.at(StartStage.CHECKING_NODES)
    launch.names.update(node_work.check(job, launch.run_name, launch.spool))
    start.at(StartStage.WAITING_FOR_DEVICES)
    ray_cluster.wait_for_predecessor(launch.trainer.sole_actor, launch.patience.predecessor_seconds)
    ray_cluster.wait_for_devices(
        job, launch.patience.devices_seconds, lambda now: start.at(StartStage.WAITING_FOR_DEVICES, now, job.devices)
    )
    launch.nodes.update(ray_cluster.sole_nodes(job))
    threading.Thread(target=watch_for_losses, args=(launch,), daemon=True).start()
    node_work.start_watch(launch.job, launch.run_name, launch.spool, launch.attempt.number)
    if launch.job.checkpoint_path and launch.keeper is not None:
        start.at(StartStage.CLAIMING_CHECKPOINTS)
        claim(Path(launch.job.checkpoint_path), launch.owner, launch.patience.claim)
        launch.keeper.start()
    choose_start(launch)
    refuse_if_stopped(launch)
    start.at(StartStage.STARTING_TRAINER)


def choose_start(launch: Launch) -> None:
    """Set the trainer's start. Only now, because an earlier attempt may have been saving until a moment ago."""
    trainer, job = launch.trainer, launch.job
    if job.command is not None:
        start = command_start.choose(job, launch.attempt)
    else:
        start = resume.choose(job, launch.attempt, trainer.loads, only_evaluates=trainer.only_evaluates(job))
    print(f"rljob: {start.message}", file=sys.stderr, flush=True)  # noqa: T201
    launch.trainer.begin_at(start)


def install_stop_handlers(launch: Launch, *, connected: bool = False) -> None:
    """Convert SIGTERM into a stop request. The first call also watches for stops that cannot wait for the trainer."""

    def on_term(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal module's signature
        request = StopRequest(attempt=launch.attempt.number, mode=StopMode.AFTER_STEP)
        # On a full disk, the request still reaches the trainer.
        with contextlib.suppress(OSError):
            launch.spool.request_stop(request)
        if connected:
            # Not in the handler itself, because Ray's client may hold a lock in the interrupted frame.
            threading.Thread(target=launch.trainer.request_stop, args=(request.mode,), daemon=True).start()

    signal.signal(signal.SIGTERM, on_term)
    if not connected:
        threading.Thread(target=watch_for_hard_stop, args=(launch,), daemon=True).start()


def watch_for_hard_stop(launch: Launch) -> None:
    """End the process on a request to stop immediately. Ray then ends every actor of the job.

    A run whose first step has not started has nothing to save. Its start may take longer than any grace period, or
    never end if pods or the head's Service are being deleted. Every stop request ends it.
    """
    while True:
        request = launch.spool.stop_request(launch.attempt.number)
        if request is not None and launch.verdict.outcome is not None:
            return  # the outcome is final, and the process is about to exit
        if request is not None and request.mode is StopMode.STALLED:
            leave_early(launch, stalled(launch))
        if request is not None and not launch.spool.has_begun(launch.attempt.number):
            if launch.keeper is not None:
                launch.keeper.stop(clean=True)
            leave_early(launch, from_error(stopped_before_start(), last_step=step_of(launch)))
        if request is not None and request.mode is StopMode.IMMEDIATE:
            leave_early(launch, stopped(launch, step_of(launch), StopMode.IMMEDIATE))
        time.sleep(HARD_STOP_POLL_SECONDS)


def watch_for_losses(launch: Launch) -> None:
    """End the process when a node or a process is lost without which the trainer may wait for ever."""
    outcome = from_error(launch.losses.wait(), last_step=step_of(launch))
    leave_early(launch, log_rules.apply_rules(outcome, launch.job.log_rules, own_log(), stall.RULES_SECONDS))


def stalled(launch: Launch) -> Outcome:
    """Save the stacks of every process, and return the outcome of a stalled run."""
    progress, record = launch.spool.progress(), launch.spool.last_step(launch.attempt.number)
    step, begun = (progress.step, progress.start_time) if progress else (0, time.time())
    targets = [folder for folder in (launch.scratch, launch.mirror.folder) if folder is not None]
    outcome = stall.outcome_of(launch.run_name, step, record.time if record else begun, targets)
    return log_rules.apply_rules(outcome, launch.job.log_rules, own_log(), stall.RULES_SECONDS)


def leave_early(launch: Launch, outcome: Outcome) -> NoReturn:
    """End the process from a watching thread."""
    leave(Ending(end(launch, outcome), launch.mirror))


def refuse_if_stopped(launch: Launch) -> None:
    """Raise RefusedError if a stop was already requested."""
    request = launch.spool.stop_request(launch.attempt.number)
    if request is not None:
        raise stopped_before_start()


def stopped_before_start() -> RefusedError:
    """Return the error for a stop request before the first step."""
    return RefusedError(ExitCode.STOPPED, "StoppedBeforeStart", "stopped on request before the first step")


def stopped(launch: Launch, step: int, mode: StopMode, abandoned_step: int | None = None) -> Outcome:
    """Return the outcome of a requested stop, with the step whose rollout was abandoned."""
    stop = f"stopped after step {step}" if mode is StopMode.AFTER_STEP else f"stopped at once, at step {step}"
    if abandoned_step is not None:
        stop = f"stopped after step {step}, and the rollout of step {abandoned_step} was abandoned"
    saved = saved_step(launch)
    if saved is None:
        return Outcome(int(ExitCode.STOPPED), "StoppedWithoutCheckpoint", f"{stop}; nothing is saved", last_step=step)
    return Outcome(int(ExitCode.STOPPED), "Stopped", f"{stop}; step {saved} is saved", last_step=step)


def step_of(launch: Launch) -> int:
    """Return the last complete step in the spool."""
    return step_in(launch.spool)


def step_in(spool: Spool) -> int:
    """Return the last complete step; 0 if the spool is unreadable, because an outcome must not fail on that."""
    try:
        progress = spool.progress()
    except (OSError, ContractError):
        return 0
    return progress.step if progress else 0


def saved_step(launch: Launch) -> int | None:
    """Return the step of the newest checkpoint in the spool."""
    progress = launch.spool.progress()
    return progress.checkpoint_step if progress else None


def shut_down_ray() -> None:
    """Disconnect from Ray, with a time limit."""
    import ray

    thread = threading.Thread(target=ray.shutdown, daemon=True)
    thread.start()
    thread.join(SHUTDOWN_SECONDS)


def leave(ending: Ending) -> NoReturn:
    """Print the outcome as the last line and end the process at once.

    The interpreter's shutdown would take seconds, and exit handlers of libraries might print after the last line.
    """
    try:
        # If the disk with this log is full, the copy on the log volume and the exit code are still correct.
        with contextlib.suppress(OSError):
            sys.stderr.flush()
        with contextlib.suppress(OSError):
            sys.stdout.write(f"\n{ending.outcome.to_json().decode()}\n")
            sys.stdout.flush()
        if ending.mirror is not None:
            failed = ending.outcome.exit_code != ExitCode.DONE
            run_with_timeout(KEEP_LOGS_SECONDS, functools.partial(ending.mirror.finish, own_log(), failed=failed))
    finally:
        os._exit(ending.outcome.exit_code)
