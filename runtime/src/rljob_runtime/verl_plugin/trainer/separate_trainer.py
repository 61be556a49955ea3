"""The trainer of mode SeparateAsync: replicas on nodes of their own generate while the trainer trains.

Prompts are in flight across steps as in mode ColocateAsync (async_steps.py); they pause only while the replicas receive
new weights. A step has several updates, each of a mini batch that is sampled when it is complete.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import ray
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.utils import Role
from verl.trainer.ppo.v1 import PPOTrainerSeparateAsync, register_trainer
from verl.trainer.ppo.v1 import trainer_separate_async as verls
from verl.trainer.ppo.v1.utils import MetricsAggregator

from rljob_runtime.contract import TrainerMode
from rljob_runtime.launcher_overrides import TRAINERS
from rljob_runtime.spool.prompt_metrics import REPLICAS_SERVING, REPLICAS_WANTED
from rljob_runtime.verl_plugin.router.persistent_client import PersistentClient
from rljob_runtime.verl_plugin.trainer.async_steps import AsyncSteps
from rljob_runtime.verl_plugin.trainer.kept_policy import PolicyKeeper
from rljob_runtime.verl_plugin.trainer.replicas import Replicas
from rljob_runtime.verl_plugin.trainer.trainer import StepAbandonedError

if TYPE_CHECKING:
    from omegaconf import DictConfig


WATCH_SECONDS = 5.0
"""Between looks at the replicas while responses are awaited."""


class RobustSteps(PPOTrainerSeparateAsync):  # type: ignore[misc] # verl ships no types
    """verl's trainer of the mode, whose steps may end after any of their updates, and whose replicas may be lost."""

    # Attributes of the base class, which has no types.
    global_steps: int
    standalone_server_manager: Any
    standalone_checkpoint_manager: Any

    def __init__(self, config: DictConfig) -> None:
        self._updates: list[tuple[KVBatchMeta, dict[str, Any]]] = []
        self._replicas: Replicas | None = None
        self._stopping: Callable[[], bool] = lambda: False
        self._looked = 0.0
        super().__init__(config)

    def get_llm_client(self) -> PersistentClient:
        """Return the client by which the agent loops generate."""
        client: PersistentClient = self.standalone_server_manager.get_client(client_cls=PersistentClient)
        return client

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        """Train one step. One that is abandoned after an update ends early: the weights are those of no other step."""
        self._updates.clear()
        try:
            return super().step(metrics, timing_raw)
        except StepAbandonedError:
            if not self._updates:
                raise
        return self._joined(metrics)

    def _step_once(self, metrics: dict[str, Any], timing_raw: dict[str, float], sample_batch_size: int) -> KVBatchMeta:
        batch = super()._step_once(metrics, timing_raw, sample_batch_size)
        self._updates.append((batch, metrics))
        return batch

    def _joined(self, metrics: dict[str, Any]) -> KVBatchMeta:
        """Return the batch of the updates that were done, and add their metrics, as verl's `step` does at its end."""
        together = MetricsAggregator()
        keys: list[str] = []
        tags: list[dict[str, Any]] = []
        for batch, found in self._updates:
            together.add_step_metrics(found, sample_count=sum(not tag.get("is_padding", False) for tag in batch.tags))
            keys += batch.keys
            tags += batch.tags
        metrics.update(together.get_aggregated_metrics())
        return KVBatchMeta(partition_id=self._updates[0][0].partition_id, keys=keys, tags=tags)

    # Replicas; see replicas.py.

    def follow_replicas(
        self,
        note: Callable[[str], None],
        count: Callable[[int, int], None],
        publish: Callable[[list[str]], None],
        stopping: Callable[[], bool],
    ) -> None:
        """Expect from now on that replicas are lost."""
        servers, engines = self.standalone_server_manager, self.standalone_checkpoint_manager
        self._replicas = Replicas(servers, engines, note, count, publish)
        self._stopping = stopping

    def watch_replicas(self) -> None:
        """Look at the replicas while responses are awaited. If all are gone, the first new one gets weights at once."""
        if (now := time.monotonic()) < self._looked + WATCH_SECONDS or self._replicas is None:
            return
        self._looked = now
        self._replicas.leave()
        self._replicas.begin()
        if self._replicas.look_alone() and self._replicas.take_in():
            # Those of the step before, or of this one's updates so far.
            self._synced(lambda: self.standalone_checkpoint_manager.update_weights(self.global_steps - 1))

    def on_step_end(self) -> None:
        """Send the weights to the replicas that are there, and then requests to new ones."""
        if self._replicas is None or self._replicas.ready(self._stopping):
            self._synced(super().on_step_end)

    def _synced(self, sync: Callable[[], Any]) -> None:
        """Run a sync, again where a replica is lost in it."""
        while True:
            try:
                sync()
            except Exception:
                # It fails in many ways where a replica is lost. Without one, the error is another.
                if self._replicas is None or not self._replicas.leave_soon():
                    raise
                if not self._replicas.ready(self._stopping):
                    return
            else:
                break
        if self._replicas is not None:
            self._replicas.route()


@register_trainer(TRAINERS[TrainerMode.SEPARATE_ASYNC])
class SeparateAsyncTrainer(AsyncSteps, RobustSteps):
    """verl's trainer of the mode with ours before it."""

    VERL_MODE = "separate_async"

    role_worker_mapping: dict[Any, Any]
    """Of the base class, which has no types."""

    @property
    def _servers(self) -> Any:  # noqa: ANN401 - verl's LLMServerManager
        return self.standalone_server_manager

    @property
    def _engines(self) -> Any:  # noqa: ANN401 - verl's CheckpointEngineManager
        return self.standalone_checkpoint_manager

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        for role in (Role.Actor, Role.RefPolicy):
            if role in self.role_worker_mapping:
                self.role_worker_mapping[role] = ray.remote(PolicyKeeper)

    def _setup(self) -> None:
        with _without_its_notes():
            super()._setup()
        run = self._run
        publish = run.spool.write_rollout_targets
        self.follow_replicas(run.note, run.count_replicas, publish, lambda: run.stop_mode() is not None)

    def _abandon_if_stopped(self, partition_id: str) -> None:
        super()._abandon_if_stopped(partition_id)
        self.watch_replicas()

    def _abort_requests(self) -> None:
        if self._replicas is not None:
            self._replicas.leave()
        super()._abort_requests()

    def _figures_of_mode(self, batch: KVBatchMeta) -> dict[str, float]:
        figures: dict[str, float] = super()._figures_of_mode(batch)
        if self._replicas is not None:
            figures |= {REPLICAS_SERVING: float(self._replicas.serving), REPLICAS_WANTED: float(self._replicas.wanted)}
        return figures


@contextmanager
def _without_its_notes() -> Iterator[None]:
    """Keep verl 0.9.1 from a call of its logger that fails at INFO (trainer_separate_async.py:182: `flush=True`)."""
    level = verls.logger.level
    verls.logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        verls.logger.setLevel(level)
