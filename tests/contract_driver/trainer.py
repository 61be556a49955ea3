"""The contract driver's implementation of `rljob_runtime.trainer.Trainer`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import ray

from rljob_runtime.checkpoints.contents import MODEL, OPTIMIZER
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.checkpoints.saved_steps import MODEL_FOLDER
from rljob_runtime.contract import JobConfig, StopMode
from rljob_runtime.trainer import WORKER_HOOK, Result, Setup, Trainer
from tests.contract_driver.loop import ContractTaskRunner
from tests.contract_driver.settings import Settings

HEAD_RESOURCE = "node:__internal_head__"
"""Ray's resource of the head node (ray/_common/constants.py, 2.60): the loop needs the spool, which is on the head."""


class ContractTrainer:
    """Runs the loop in an actor on the head, as verl's task runner does."""

    sole_actor = ("ContractTaskRunner", "contract")
    actor_id = None

    def __init__(self) -> None:
        self._setup: Setup | None = None
        self._start = Start()
        self._lock = threading.Lock()
        self._runner: Any = None

    def only_evaluates(self, job: JobConfig) -> bool:  # noqa: ARG002 - required by the Protocol
        """See `Trainer`: every job trains."""
        return False

    def environment(self, job: JobConfig, environ: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002 - required by the Protocol
        """See `Trainer`: it needs no variables on any platform."""
        return {}

    def prepare(self, setup: Setup) -> None:
        """Check the job's settings."""
        Settings.of(setup.job)
        self._setup = setup

    def run(self, connected: Callable[[], None]) -> Result:
        """See `Trainer`."""
        setup = self._setup
        if setup is None:
            raise AssertionError("run before prepare")
        runtime_env = {"env_vars": dict(setup.variables), "worker_process_setup_hook": WORKER_HOOK}
        ray.init(address="auto", namespace=self.sole_actor[1], runtime_env=runtime_env, logging_level="warning")
        connected()

        options = {"num_cpus": 0, "max_concurrency": 2, "resources": {HEAD_RESOURCE: 0.001}, "name": self.sole_actor[0]}
        made = ray.remote(ContractTaskRunner).options(**options)
        with self._lock:
            self._runner = made.remote(setup.job.to_json(), setup.attempt, str(setup.spool.root))
        folder = None if self._start.folder is None else str(self._start.folder)
        result: Result = ray.get(self._runner.run.remote(folder))
        return result

    @property
    def loads(self) -> Mapping[str, frozenset[str]]:
        """See `Trainer`: each rank loads both files that it saves, and there is no critic."""
        return {MODEL_FOLDER: frozenset({MODEL, OPTIMIZER})}

    def begin_at(self, start: Start) -> None:
        """See `Trainer`."""
        self._start = start

    def request_stop(self, mode: StopMode) -> None:
        """See `Trainer`."""
        with self._lock:
            if self._runner is not None:
                self._runner.request_stop.remote(mode.value)


_: type[Trainer] = ContractTrainer  # mypy checks the class against the Protocol
