"""`rljob run --local`: read, check, prepare folders, run initializers, start Ray, train, report.

Exit codes: 0 training completed, 1 the job is invalid or failed, 2 the command cannot be run, 130 interrupted.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rljob.cli.local.companion_objects import read_surroundings
from rljob.cli.local.folder import JobFolder, State, held, write
from rljob.cli.local.follow import Attempt, Interrupts, follow, outcome_of
from rljob.cli.local.guard import dismiss, start_guard
from rljob.cli.local.initializers import InitializerError, run_initializers
from rljob.cli.local.prepare import (
    LocalOptions,
    Prepared,
    prepare,
    require_accelerator,
    require_one_group,
    require_runtime,
)
from rljob.cli.local.processes import Processes
from rljob.cli.local.ray import RayPlan, plan_ray, start_ray
from rljob.cli.local.summary import tell_end
from rljob.cli.local.variables import DEFAULTS
from rljob.cli.progress_line import Line
from rljob.core.observed import Manifest
from rljob.core.validation.validate import Checked
from rljob.render.names import submission_id
from rljob_runtime.contract import AttemptVariable, ExitCode, JobConfig, Outcome, PodVariable

DONE, FAILED, INTERRUPTED = 0, 1, 130
END_SECONDS = 10.0
SOCKET_ROOM = 30
"""Longest parent of the temporary folder with which Ray's sockets (some 70 characters more) fit AF_UNIX's 107."""
SHORT_FOLDER = "/tmp"  # noqa: S108 - mkdtemp makes a private folder in it
LAUNCH = (sys.executable, "-m", "rljob_runtime", "launch", "--devices-wait-seconds", "60")
NOT_PASSED_ON = frozenset(
    {
        # These variables would lead Ray into another cluster.
        "RAY_ADDRESS",
        "RAY_NAMESPACE",
        *AttemptVariable,
        *PodVariable,
        # A dozen processes import the same gigabytes; each would compile them again, which takes a minute of two cores.
        "PYTHONDONTWRITEBYTECODE",
    }
)
"""Variables of the user's environment that the run does not get."""


def run_local(
    name: str,
    checked: Checked,
    documents: Sequence[Manifest],
    workdir: Path | None,
    given: LocalOptions,
) -> int:
    """Run one valid job and return the exit code; `documents` are the other manifests of its files."""
    if checked.spec is None:
        raise AssertionError("an invalid job is reported and not run")
    require_one_group(checked.spec)
    require_accelerator(checked.spec)
    require_runtime(given.launcher, checked.spec)
    root = (workdir or Path(".rljob") / name).absolute()
    with held(root) as folder:
        state = folder.state()
        prepared = prepare(name, checked, read_surroundings(documents), folder, state, given)
        print(f"{name}: local run in {root}", flush=True)
        for note in prepared.notes:
            print(f"note: {note}", flush=True)
        if state.finished_digest == prepared.config.digest() and Path(str(prepared.config.checkpoint_path)).is_dir():
            print(f"all steps are trained already; raise trainer.steps, or remove {root} to start over")
            return DONE
        return _run(LocalRun(folder, prepared, replace(state, checkpoint_path=prepared.config.checkpoint_path)))


@dataclass(frozen=True)
class LocalRun:
    """The state of one run."""

    folder: JobFolder
    prepared: Prepared
    state: State

    @property
    def config(self) -> JobConfig:
        """The spec that the launcher reads."""
        return self.prepared.config


def _run(run: LocalRun) -> int:
    """Run initializers and training, and clean up all processes and temporary files in every case."""
    line = Line()
    with Interrupts().caught() as interrupts, _temporary_folder() as temporary:
        processes = Processes(_base_environment(temporary))
        guard = start_guard(processes, temporary)
        try:
            if not run_initializers(run.prepared.initializers, run.folder, processes, interrupts, line):
                print("interrupted before training started")
                return INTERRUPTED
            return _train(run, processes, temporary, interrupts, line)
        except InitializerError as error:
            print(f"rljob: {error}", file=sys.stderr)
            return FAILED
        finally:
            line.end()
            processes.end_all(END_SECONDS)
            dismiss(guard)


def _train(run: LocalRun, processes: Processes, temporary: Path, interrupts: Interrupts, line: Line) -> int:
    state = run.folder.begin_attempt(run.state)
    write(run.folder.job_json, run.config.to_json())
    plan = plan_ray(run.prepared.spec)
    log = run.folder.logs / f"ray-{state.attempts}.log"
    start_ray(plan, processes, run.prepared.ray_environment, temporary, log)
    child = processes.start(
        LAUNCH,
        {**run.prepared.launcher_environment, **_attempt_environment(run, state, plan)},
        run.folder.logs / f"attempt-{state.attempts}.log",
        run.folder.root,
    )
    spec = run.prepared.spec
    attempt = Attempt(run.folder, state.attempts, child, spec.stop, spec.deadlines, steps_are_seen=spec.reports_steps)
    progress = follow(attempt, interrupts, line)
    outcome = outcome_of(attempt, progress)
    if outcome.exit_code == ExitCode.DONE:
        run.folder.keep(replace(state, finished_digest=run.config.digest()))
    code = _exit_code(outcome, interrupts)
    if code == FAILED:
        _keep_ray_logs(temporary, run.folder.logs / f"ray-{state.attempts}")
    tell_end(run.folder, attempt, outcome, progress, interrupted=code == INTERRUPTED)
    return code


def _exit_code(outcome: Outcome, interrupts: Interrupts) -> int:
    if outcome.exit_code == ExitCode.DONE:
        return DONE
    return INTERRUPTED if interrupts.count else FAILED


def _attempt_environment(run: LocalRun, state: State, plan: RayPlan) -> dict[str, str]:
    """Return the variables that the operator sets by pod and submission."""
    pod = str(uuid.uuid4())
    return {
        **plan.environment,
        "RAY_ADDRESS": plan.address,
        PodVariable.POD_UID: pod,
        PodVariable.CONFIG: str(run.folder.job_json),
        PodVariable.SPOOL: str(run.folder.spool),
        AttemptVariable.ATTEMPT: str(state.attempts),
        AttemptVariable.SUBMISSION_ID: submission_id(run.config.cluster_name, state.attempts),
        AttemptVariable.HEAD_POD_UID: pod,
        AttemptVariable.JOB_DIGEST: run.config.digest(),
    }


def _base_environment(temporary: Path) -> dict[str, str]:
    """Return the variables of every process: the user's environment, with this interpreter first on the PATH."""
    own = {name: value for name, value in os.environ.items() if name not in NOT_PASSED_ON}
    path = os.pathsep.join([str(Path(sys.executable).parent), own.get("PATH", os.defpath)])
    sockets = temporary / "t"
    sockets.mkdir()
    return {**DEFAULTS, **own, "PATH": path, "TMPDIR": str(sockets)}


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """Create a folder with a short path for Ray, and remove it at the end."""
    parent = tempfile.gettempdir()
    folder = Path(tempfile.mkdtemp(prefix="rljob-", dir=parent if len(parent) <= SOCKET_ROOM else SHORT_FOLDER))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _keep_ray_logs(temporary: Path, target: Path) -> None:
    with suppress(OSError, shutil.Error):
        shutil.copytree(temporary / "session_latest" / "logs", target, dirs_exist_ok=True)
