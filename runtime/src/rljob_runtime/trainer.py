"""The interface between the launcher and the trainer of an image: `Trainer`.

The launcher checks the environment, waits for the cluster, claims the checkpoints, chooses the start, watches for stops
and lost nodes, and reports the outcome. The trainer composes its configuration, connects to Ray, trains and saves. Its
processes access the spool and the checkpoint folder through `training_attempt.TrainingAttempt`, whose attribute `start`
publishes what the start is doing.

The image determines the trainer: an installed distribution registers a class, created without arguments, in the entry
point group `rljob_runtime.trainers`. Our own verl trainer is the default; a trainer of another distribution takes
precedence. A job with a command needs none of them: `command.trainer` runs the command in any image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.contract import ExitCode, JobConfig, StopMode
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool.spool import Spool
from rljob_runtime.spool.stop_rules import Match

GROUP = "rljob_runtime.trainers"
DEFAULT = "verl"
WORKER_HOOK = "rljob_runtime.node.worker_setup.set_up"
"""Ray calls it in each worker process of the job (runtime_env.worker_process_setup_hook)."""


@dataclass(frozen=True)
class Setup:
    """What a trainer gets about its attempt before anything runs."""

    job: JobConfig
    attempt: int
    spool: Spool
    scratch: Path
    """Folder on the head for files that are not needed after the attempt."""
    variables: Mapping[str, str]
    """Environment variables that every process of the run needs."""


@dataclass(frozen=True)
class Result:
    """How a training loop ended."""

    step: int
    """The last step that was trained."""
    stopped_by: StopMode | None = None
    matched: Match | None = None
    """The stop rule that ended it."""
    evaluation: Mapping[str, float] | None = None
    """Validation metrics of a run that only evaluates."""
    abandoned_step: int | None = None
    """The step after `step` whose rollout was abandoned."""


class Trainer(Protocol):
    """Trains one attempt. The launcher calls the methods once each, in this order, except `request_stop`."""

    @property
    def sole_actor(self) -> tuple[str, str]:
        """Name and namespace of a Ray actor that lives as long as a run. A second run waits until it is gone."""

    @property
    def actor_id(self) -> str | None:
        """Ray's id of the actor that creates the processes of the run, while there is one. Read from any thread."""

    def only_evaluates(self, job: JobConfig) -> bool:
        """Report whether the job trains nothing."""

    def environment(self, job: JobConfig, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables that every process of the run needs; the pod's values take precedence.

        Raises RefusedError (exit 64) for an image in which the trainer cannot run.
        """

    def prepare(self, setup: Setup) -> None:
        """Compose and check the configuration. Raises RefusedError (exit 64) for a configuration that can never run."""

    def run(self, connected: Callable[[], None]) -> Result:
        """Connect to the Ray cluster, call `connected`, and train to the end.

        Exceptions of `connected` propagate unchanged. Every process of the run must have the variables of the setup and
        call `WORKER_HOOK` when it starts.
        """

    @property
    def loads(self) -> Mapping[str, frozenset[str]]:
        """Which parts of a checkpoint (`model`, `optimizer`) it loads, by the folder of each role that it trains.

        Read within `connected`. If it lacks the folder `critic`, a checkpoint needs no critic.
        """

    def begin_at(self, start: Start) -> None:
        """Set the step to start from, within `connected`. Raises RefusedError for a step that it cannot load."""

    def request_stop(self, mode: StopMode) -> None:
        """Forward a stop, from any thread and at any time after `prepare`. The spool contains the same request."""


def load(job: JobConfig) -> Trainer:
    """Return the trainer of the job's command, otherwise the image's.

    Raises RefusedError (exit 64) if the image has none or several.
    """
    if job.command is not None:
        from rljob_runtime.command.trainer import CommandTrainer

        return CommandTrainer()
    entry = choose(entry_points(group=GROUP))
    try:
        made: Trainer = entry.load()()
    except Exception as error:
        raise _refused(f"cannot load the entry point {entry.name} ({entry.value}): {error!r}") from error
    return made


def choose(entries: Iterable[EntryPoint]) -> EntryPoint:
    """Return the installed trainer that is not our default, otherwise the default."""
    by_name = {entry.name: entry for entry in entries}
    others = sorted(by_name.keys() - {DEFAULT})
    if len(others) > 1:
        raise _refused(f"the image has several: {', '.join(others)}; install one of them")
    try:
        return by_name[others[0] if others else DEFAULT]
    except KeyError:
        raise _refused("the image has none; install rljob-runtime with its dist-info") from None


def _refused(what: str) -> RefusedError:
    return RefusedError(ExitCode.BAD_CONFIG, "TrainerMissing", f"entry points of group {GROUP}: {what}")
