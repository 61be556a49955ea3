"""The training loop, in an actor on the head. Steps, stops and saves have the same order as in verl's trainer.

See rljob_runtime/verl_plugin/trainer/trainer.py, which does the same through verl's hooks. A stop takes effect before a
step, during its rollout, or after its update. A trained step is saved once. If a rollout is abandoned, the previous
step is the last one.
"""

from __future__ import annotations

import functools
import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray

from rljob_runtime import training_attempt
from rljob_runtime.checkpoints import resume, saved_steps
from rljob_runtime.contract import JobConfig, StartStage, StopMode
from rljob_runtime.spool import step_metrics
from rljob_runtime.spool.spool import Spool
from rljob_runtime.spool.start_report import count_tasks
from rljob_runtime.spool.stop_rules import Match, StopRules
from rljob_runtime.trainer import Result
from rljob_runtime.training_attempt import TrainingAttempt
from tests.contract_driver import settings, state
from tests.contract_driver.rank import ContractRank
from tests.contract_driver.settings import Settings

DEVICE = "NPU"
STOP_POLL_SECONDS = 0.1
REQUESTS = 32
"""Requests of a rank in a step, each with the following numbers of tokens."""
PROMPT_TOKENS, RESPONSE_TOKENS = 16, 8


class AbandonedError(Exception):
    """The rollout of a step was abandoned."""


class ContractTaskRunner:
    """The loop of one attempt. A second thread of the actor receives stop requests in the meantime."""

    def __init__(self, job: bytes, attempt: int, spool: str) -> None:
        self._job = JobConfig.from_json(job)
        self._attempt = TrainingAttempt(self._job, attempt, Spool(Path(spool)))
        self._attempt.keep = settings.keep(self._job)
        training_attempt.install(self._attempt)
        self._settings = Settings.of(self._job)
        self._rules = StopRules(self._job.stop_rules)
        self._ranks: list[Any] = []
        self._step = 0

    def request_stop(self, mode: str) -> None:
        """Ask the loop to stop."""
        self._attempt.request_stop(StopMode(mode))

    def run(self, folder: str | None) -> Result:
        """Train from the step in `folder`, or from the beginning."""
        logging.getLogger(__name__).warning("trainer runs on %s, pid %d", socket.gethostname(), os.getpid())
        try:
            self._begin(Path(folder) if folder else None)
            return self._loop()
        finally:
            self._attempt.close()

    def _begin(self, made: Path | None) -> None:
        self._attempt.start.at(StartStage.STARTING_RANKS, 0, self._job.devices)
        self._ranks = make_ranks(self._job.devices, self._settings)
        address, port = ray.get(self._ranks[0].listen.remote())
        self._all_counted(StartStage.STARTING_RANKS, "join", address, port)
        with resume.loading(made):
            loading = StartStage.LOADING_MODEL if made is None else StartStage.LOADING_CHECKPOINT
            (self._step,) = set(self._all_counted(loading, "load", made))
            if made is not None:
                content = state.read_zip(made / saved_steps.COMPLETE_MARK)
                if content != {"step": self._step}:
                    raise state.StateError(
                        f"{made}: the data state is {content}, but the ranks are at step {self._step}"
                    )
        self._attempt.resumed(self._step)

    def _loop(self) -> Result:
        while self._step < self._job.total_steps:
            if (mode := self._attempt.stop_mode()) is not None:
                if self._attempt.has_begun:
                    self._save_once()
                return Result(self._step, mode)
            self._attempt.step_began()
            self._attempt.start.at(StartStage.FIRST_ROLLOUT)
            started = time.monotonic()
            try:
                window = self._rollout()
            except AbandonedError:
                if self._step > 0:
                    self._save_once()
                return Result(self._step, StopMode.ABORT_ROLLOUT, abandoned_step=self._step + 1)
            ended = self._rest_of_step(started, window)
            if ended is not None:
                return ended
        return Result(self._step)

    def _rest_of_step(self, started: float, window: step_metrics.RolloutWindow) -> Result | None:
        """Train, save and record a step. Return the result if the run ends with this step."""
        generated = time.monotonic()
        self._attempt.start.at(StartStage.FIRST_UPDATE)
        self._all("train", self._step + 1)
        self._step += 1
        updated = time.monotonic()
        every, is_last = settings.save_every(self._job), self._step == self._job.total_steps
        if every and (is_last or self._step % every == 0):
            self._save_once()
        mode = None if is_last else self._attempt.stop_mode()
        if mode is not None:
            self._save_once()
        match = self._record(started, generated, updated, window)
        if match is not None:
            if not match.breaks_weights():
                self._save_once()
            return Result(self._step, mode, match)
        return None if mode is None else Result(self._step, mode)

    def _rollout(self) -> step_metrics.RolloutWindow:
        """Let all ranks generate. Raise AbandonedError if a stop abandons the rollout."""
        pending = [rank.generate.remote() for rank in self._ranks]
        waiting = pending
        while waiting:
            if self._attempt.stop_mode() is StopMode.ABORT_ROLLOUT:
                self._all("abort")
                ray.get(pending)
                raise AbandonedError
            _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=STOP_POLL_SECONDS)
        seconds = ray.get(pending)
        replicas = {str(rank): step_metrics.ReplicaWindow(0.0, taken, REQUESTS) for rank, taken in enumerate(seconds)}
        return step_metrics.RolloutWindow(replicas, tail_begin=step_metrics.TAIL * min(seconds))

    def _record(
        self, started: float, generated: float, updated: float, window: step_metrics.RolloutWindow
    ) -> Match | None:
        """Record the step with the metrics of every trainer. Return the stop rule that it matches, if any."""
        count = REQUESTS * len(self._ranks)
        metrics = {
            "training/global_step": float(self._step),
            "critic/score/mean": 1 - 0.9**self._step,
            "prompt_length/mean": float(PROMPT_TOKENS),
            "response_length/mean": float(RESPONSE_TOKENS),
            step_metrics.VERL_TOKENS: float(count * (PROMPT_TOKENS + RESPONSE_TOKENS)),
            "timing_s/gen": generated - started,
            "timing_s/update_actor": updated - generated,
            "timing_s/step": time.monotonic() - started,
        }
        metrics |= self._attempt.own_metrics(metrics, window, step_metrics.Batch(count))
        self._attempt.record(self._step, metrics)
        return self._rules.observe(self._step, metrics)

    def _save_once(self) -> None:
        folder = self._attempt.checkpoint_folder
        if folder is not None and saved_steps.tracked_step(folder) != self._step:
            self._save()

    def _save(self) -> None:
        """Save as verl's trainer does: fenced, in a folder of this attempt, published when it is complete."""
        self._attempt.clear(self._step)
        started = time.monotonic()
        if (place := self._attempt.new_place()) is None:
            return
        made = saved_steps.step_folder(place, self._step)
        self._all("save", made)
        self._attempt.check_owner()
        state.write_zip(made / saved_steps.COMPLETE_MARK, {"step": self._step})
        self._attempt.publish(self._step, made)
        self._attempt.saved(self._step, time.monotonic() - started)

    def _all(self, method: str, *arguments: object) -> list[Any]:
        """Call a method of every rank and return the results."""
        results: list[Any] = ray.get(self._call(method, *arguments))
        return results

    def _all_counted(self, stage: StartStage, method: str, *arguments: object) -> list[Any]:
        """Do the same, and report how many ranks have finished."""
        tasks = self._call(method, *arguments)
        self._attempt.start.at(stage, 0, len(tasks))
        count_tasks(self._attempt.start, (stage, tasks))
        results: list[Any] = ray.get(tasks)
        return results

    def _call(self, method: str, *arguments: object) -> list[Any]:
        calls: list[Callable[..., Any]] = [getattr(rank, method).remote for rank in self._ranks]
        return [call(*arguments) for call in calls]


def make_ranks(count: int, wanted: Settings) -> list[Any]:
    """Create one actor per device."""
    make = functools.partial(ray.remote, max_concurrency=2)
    return [
        make(num_cpus=0, resources={DEVICE: 1.0}, runtime_env={"env_vars": {"RANK": str(rank)}})(ContractRank).remote(
            rank, count, wanted
        )
        for rank in range(count)
    ]
