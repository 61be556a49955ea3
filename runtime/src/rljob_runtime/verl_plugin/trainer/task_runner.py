"""verl's task runner, pinned to the head pod and reachable while it runs.

`run_ppo` creates a task runner with `.remote()` and calls `.run.remote(config)`. `PinnedTaskRunner` implements both, so
that the launcher can place the actor, wait for the cluster after connecting to Ray, and get the result.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import ray
from verl.trainer.main_ppo import TaskRunnerV1

from rljob_runtime.contract import JobConfig, StopMode, TrainerMode
from rljob_runtime.spool.spool import Spool
from rljob_runtime.trainer import Result
from rljob_runtime.verl_plugin.trainer.result import result_of

if TYPE_CHECKING:
    from omegaconf import DictConfig

HEAD_RESOURCE = "node:__internal_head__"
"""Ray's resource of the head node (ray/_common/constants.py), where the trainer can access the spool."""
MODULES = {
    TrainerMode.SYNC: "sync_trainer",
    TrainerMode.COLOCATE_ASYNC: "colocate_trainer",
    TrainerMode.SEPARATE_ASYNC: "separate_trainer",
}
"""Modules of this package. Only that of the job's mode is imported: an image's verl may lack the base of another."""


class RLJobTaskRunner(TaskRunnerV1.__ray_actor_class__):  # type: ignore[misc] # the class behind Ray's wrapper
    """Runs in an actor with two threads, so that it accepts stop requests while `run` is executing."""

    def __init__(self, job: bytes, attempt: int, spool: str) -> None:
        super().__init__()
        from rljob_runtime.training_attempt import TrainingAttempt, install

        self._run = TrainingAttempt(JobConfig.from_json(job), attempt, Spool(Path(spool)))
        install(self._run)

    def run(self, config: DictConfig) -> Result:
        """Train. The import registers the trainer in this process."""
        importlib.import_module(f"rljob_runtime.verl_plugin.trainer.{MODULES[self._run.job.mode]}")
        logging.getLogger(__name__).warning("trainer runs on %s, pid %d", socket.gethostname(), os.getpid())
        try:
            super().run(config)
        finally:
            self._run.close()
        return result_of(self.trainer)

    def request_stop(self, mode: str) -> None:
        """Ask the trainer to stop."""
        self._run.request_stop(StopMode(mode))


class PinnedTaskRunner:
    """Replaces the actor class in `run_ppo`."""

    def __init__(self, job: JobConfig, attempt: int, spool: Spool, connected: Callable[[], None]) -> None:
        self._arguments = (job.to_json(), attempt, str(spool.root))
        self._connected = connected
        self._actor: Any = None
        self._result: Any = None

    def remote(self) -> PinnedTaskRunner:
        """Create the actor on the head. `run_ppo` calls this right after it has connected to Ray."""
        self._connected()
        # It must not request a CPU, because a head may offer none.
        options = {"num_cpus": 0, "max_concurrency": 2, "resources": {HEAD_RESOURCE: 0.001}}
        self._actor = ray.remote(RLJobTaskRunner).options(**options).remote(*self._arguments)
        return self

    @property
    def actor_id(self) -> str | None:
        """Return Ray's id of the actor, once it is created."""
        return None if self._actor is None else str(self._actor._actor_id.hex())  # noqa: SLF001 - Ray has no other way

    @property
    def run(self) -> RunMethod:
        """Return the object that `run_ppo` calls as `runner.run.remote(config)`."""
        return RunMethod(self)

    def start(self, config: DictConfig) -> Any:  # noqa: ANN401 - a Ray object reference
        """Start the run and keep the reference to its result, which `run_ppo` only waits for."""
        self._result = self._actor.run.remote(config)
        return self._result

    def request_stop(self, mode: StopMode) -> None:
        """Forward a stop to the actor, if it exists."""
        if self._actor is not None:
            self._actor.request_stop.remote(mode.value)

    def result(self) -> Result:
        """Return the result of the finished run."""
        result: Result = ray.get(self._result)
        return result


@dataclass(frozen=True)
class RunMethod:
    """Has the interface of an actor's method."""

    runner: PinnedTaskRunner

    def remote(self, config: DictConfig) -> Any:  # noqa: ANN401 - a Ray object reference
        """Start the run."""
        return self.runner.start(config)
