"""The trainer of a job with a command: `trainer.Trainer` for any program that runs in the Ray cluster.

The command is a driver of its own. It connects to the cluster as every entrypoint of a Ray job does, by RAY_ADDRESS,
and takes the runtime environment of its Ray job from a variable that Ray reads in `ray.init`: the run's variables and
the hook of every worker process. A program that does not use Ray runs as well.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.command import loop, nested
from rljob_runtime.contract import CommandConfig, JobConfig, StopMode
from rljob_runtime.node import ray_binding
from rljob_runtime.trainer import WORKER_HOOK, Result, Setup, Trainer
from rljob_runtime.training_attempt import TrainingAttempt

RAY_JOB_CONFIG = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""Variable with the job's configuration (ray/_private/runtime_env/constants.py; read in ray/_private/worker.py, init,
2.60). Ray's job supervisor sets it for the entrypoint."""
RAY_OVERRIDE = "RAY_OVERRIDE_JOB_RUNTIME_ENV"
"""Lets a runtime environment that the program passes to `ray.init` take precedence instead of being refused."""
HEAD_RESOURCE = "node:__internal_head__"
"""Ray's resource of the head node (ray/_common/constants.py, 2.60)."""


class Presence:
    """An actor that lives as long as the run, so that a second run waits for its end."""

    def ready(self) -> bool:
        """Return True once the actor exists."""
        return True


class CommandTrainer:
    """Runs the command on the head."""

    sole_actor = ("CommandRun", "rljob")
    actor_id = None
    """What a command does about a process that it loses is its own matter."""

    def __init__(self) -> None:
        self._setup: Setup | None = None
        self._start = Start()
        self._environ: Mapping[str, str] = {}
        self._presence: Any = None

    def only_evaluates(self, job: JobConfig) -> bool:  # noqa: ARG002 - required by the Protocol
        """See `Trainer`: what a command does is not known."""
        return False

    def environment(self, job: JobConfig, environ: Mapping[str, str]) -> Mapping[str, str]:  # noqa: ARG002 - required by the Protocol
        """See `Trainer`: the other variables of a command are those of the pods."""
        return ray_binding.variables() if job.core_binding else {}

    def prepare(self, setup: Setup) -> None:
        """Check the command, and keep the environment as it is before this process connects to Ray."""
        loop.require(setup.job, command_of(setup.job), setup.attempt)
        self._environ = child_environment(os.environ, setup.variables)
        self._setup = setup

    def run(self, connected: Callable[[], None]) -> Result:
        """See `Trainer`."""
        import ray

        name, namespace = self.sole_actor
        ray.init(address="auto", namespace=namespace, logging_level="warning")
        connected()
        options = {"name": name, "num_cpus": 0, "resources": {HEAD_RESOURCE: 0.001}}
        self._presence = ray.remote(Presence).options(**options).remote()
        began = time.time()
        try:
            return self.train()
        finally:
            self._stop_nested(began)

    def _stop_nested(self, began: float) -> None:
        setup = self._prepared
        progress = setup.spool.progress()
        own = progress.submission_id if progress is not None else ""
        nested.stop_left(own, began, TrainingAttempt(setup.job, setup.attempt, setup.spool).note)

    def train(self) -> Result:
        """Run the command to its end."""
        setup = self._prepared
        return loop.Loop(setup, command_of(setup.job), self._start, self._environ).run()

    @property
    def _prepared(self) -> Setup:
        if self._setup is None:
            raise AssertionError("run before prepare")
        return self._setup

    @property
    def loads(self) -> Mapping[str, frozenset[str]]:
        """See `Trainer`: only the command knows what it loads (command/start.py)."""
        return {}

    def begin_at(self, start: Start) -> None:
        """See `Trainer`."""
        self._start = start

    def request_stop(self, mode: StopMode) -> None:
        """See `Trainer`: the loop reads the request from the spool."""


def command_of(job: JobConfig) -> CommandConfig:
    """Return the job's command."""
    if job.command is None:
        raise AssertionError("the trainer of a command for a job without one")
    return job.command


def child_environment(environ: Mapping[str, str], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of the command, which brings variables and hook to every process of its Ray job."""
    try:
        config = json.loads(environ.get(RAY_JOB_CONFIG) or "{}")
    except ValueError:
        config = {}
    runtime_env = config.get("runtime_env") or {}
    runtime_env["env_vars"] = {**(runtime_env.get("env_vars") or {}), **variables}
    runtime_env["worker_process_setup_hook"] = WORKER_HOOK
    return {
        RAY_OVERRIDE: "1",
        "PYTHONUNBUFFERED": "1",  # steps are read from the output as they are printed
        **environ,
        RAY_JOB_CONFIG: json.dumps({**config, "runtime_env": runtime_env}),
    }


_: type[Trainer] = CommandTrainer  # mypy checks the class against the Protocol
