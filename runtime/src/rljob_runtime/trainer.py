"""The seam between the launcher and what trains: `Trainer`, and which one an image has.

The launcher checks the place, waits for the cluster, claims the checkpoints, chooses where to begin, watches for stops
and lost nodes, and names the end. The trainer composes its configuration, connects to Ray, trains and saves. Inside its
processes it talks to the spool and to the checkpoint folder through `training_attempt.TrainingAttempt`.

An image decides who trains: a distribution that is installed in it registers a class without arguments in the entry
point group `rljob_runtime.trainers`. Our own verl trainer is the default; another distribution's goes before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

from rljob_runtime.contract import ExitCode, JobConfig, StopMode
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.resume import Start
from rljob_runtime.spool import Spool
from rljob_runtime.stop_rules import Match

GROUP = "rljob_runtime.trainers"
DEFAULT = "verl"
WORKER_HOOK = "rljob_runtime.worker_setup.set_up"
"""Ray calls it in each worker process of the job (runtime_env.worker_process_setup_hook)."""


@dataclass(frozen=True)
class Setup:
    """What a trainer is told about its attempt before anything runs."""

    job: JobConfig
    attempt: int
    spool: Spool
    scratch: Path
    """Folder on the head for files that nobody needs after the attempt."""
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
    """The step after `step` whose rollout was given up."""


class Trainer(Protocol):
    """Trains one attempt. The launcher calls the methods once each, in this order, except `request_stop`."""

    @property
    def sole_actor(self) -> tuple[str, str]:
        """Name and namespace of a Ray actor that lives as long as a run does: a second run waits until it is gone."""

    def only_evaluates(self, job: JobConfig) -> bool:
        """Report whether the job trains nothing."""

    def environment(self, job: JobConfig, environ: Mapping[str, str]) -> Mapping[str, str]:
        """Return the variables that every process of the run needs; what the pod sets wins."""

    def prepare(self, setup: Setup) -> None:
        """Compose and check the configuration; raises RefusedError (exit 64) for what can never run."""

    def run(self, connected: Callable[[], None]) -> Result:
        """Connect to the Ray cluster, call `connected`, and train to the end.

        What `connected` raises leaves this method unchanged. Every process of the run must have the variables of the
        setup and call `WORKER_HOOK` when it starts.
        """

    @property
    def loads(self) -> Mapping[str, frozenset[str]]:
        """What it loads of a checkpoint, of `model` and `optimizer`, by the folder of each role that it trains.

        Asked within `connected`; without the folder `critic` in it, a checkpoint needs none.
        """

    def begin_at(self, start: Start) -> None:
        """Take the step to begin from, within `connected`; raises RefusedError for one that it cannot load."""

    def request_stop(self, mode: StopMode) -> None:
        """Pass a stop on, from any thread, at any time after `prepare`; the spool holds the same request."""


def load() -> Trainer:
    """Return the image's trainer; raises RefusedError (exit 64) where the image does not decide."""
    entry = choose(entry_points(group=GROUP))
    try:
        made: Trainer = entry.load()()
    except Exception as error:
        raise _refused(f"the entry point {entry.name} ({entry.value}) cannot be loaded: {error!r}") from error
    return made


def choose(entries: Iterable[EntryPoint]) -> EntryPoint:
    """Choose among the installed trainers: the one that is not our default, if there is any."""
    by_name = {entry.name: entry for entry in entries}
    others = sorted(by_name.keys() - {DEFAULT})
    if len(others) > 1:
        raise _refused(f"the image has several: {', '.join(others)}; install one of them")
    try:
        return by_name[others[0] if others else DEFAULT]
    except KeyError:
        raise _refused("the image has none: install rljob-runtime with its dist-info") from None


def _refused(what: str) -> RefusedError:
    return RefusedError(ExitCode.BAD_CONFIG, "TrainerMissing", f"entry points of group {GROUP}: {what}")
