"""What the optimizations of a job change about verl's trainers; each is described in its own module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ray
from verl.trainer.ppo.v1 import PPOTrainer

from rljob_runtime import gc_freeze, training_attempt
from rljob_runtime.verl_plugin.router import late_client, late_router, replica
from rljob_runtime.verl_plugin.trainer import batch_balance, on_policy, ordered_loader, profiling

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from tensordict import TensorDict
    from verl.trainer.ppo.v1.replay_buffer import KVBatchMeta
    from verl.workers.rollout.llm_server import LLMServerClient


ROUTER_SECONDS = 30.0
"""Wait for an answer of the router, which is a process that does nothing else."""


class OptimizedTrainer(PPOTrainer):  # type: ignore[misc] # verl ships no types
    """verl's trainer with the optimizations that job.json asks for. A trainer of verl's comes after it in the MRO."""

    # Attributes of the base class, which has no types.
    global_steps: int
    curr_step_profile: bool
    steps_per_epoch: int
    val_dataset: Any
    train_dataloader: Any

    def __init__(self, config: DictConfig) -> None:
        self._run = training_attempt.current()
        self._old = on_policy.SkippedPass(config, self._run)
        super().__init__(config)

    @property
    def _servers(self) -> Any:  # noqa: ANN401 - verl's LLMServerManager
        """Return verl's manager of the replicas that generate."""
        return self.llm_server_manager

    @property
    def _engines(self) -> Any:  # noqa: ANN401 - verl's CheckpointEngineManager
        """Return verl's manager of the weights of these replicas."""
        return self.checkpoint_manager

    def _most_requests(self) -> int:
        """Return the most requests that are sent at once; the validation data must have been read."""
        return replica.requests_of(self.config, len(self.val_dataset))

    def _setup(self) -> None:
        super()._setup()
        self._old.install(self.actor_rollout_wg)

    # Routing and prompts; see router/late_binding.py and prompt_order.py.

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        if self._run.job.optimizations.late_binding:
            late_router.register(late_router.limits_of(self.config.actor_rollout_ref.rollout, self._most_requests()))
        if self._run.job.optimizations.length_aware_order and self.steps_per_epoch > 0:
            self.train_dataloader = ordered_loader.ordered(self.train_dataloader, self.config, self._run.note)

    def _fetch_one_gen_batch(self) -> TensorDict:
        batch = super()._fetch_one_gen_batch()
        if isinstance(self.train_dataloader, ordered_loader.OrderedLoader):
            self.train_dataloader.take_rows(batch)
        return batch

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        self.train_dataloader = ordered_loader.continued(self.train_dataloader, self.config, self._run.note)

    def on_train_begin(self) -> None:
        """Watch lengths, and exempt what the start created from garbage collection."""
        super().on_train_begin()
        if isinstance(self.train_dataloader, ordered_loader.OrderedLoader):
            self.train_dataloader.order.watch(self.replay_buffer)
        if self._run.job.optimizations.gc_freeze:
            self._freeze()

    def _freeze(self) -> None:
        """Exempt what the start created from garbage collection, in the ranks and in this process."""
        # A rank runs its tasks in order, so the next one waits for this; a critic's ranks are those of the actor.
        for rank in self.actor_rollout_wg.workers:
            rank.__ray_call__.remote(gc_freeze.freeze_rank)
        gc_freeze.freeze()

    def get_llm_client(self) -> LLMServerClient:
        """Return the client by which the agent loops generate."""
        if self._run.job.optimizations.late_binding:
            return self._servers.get_client(client_cls=late_client.LengthClient)
        return super().get_llm_client()

    def _abort_requests(self) -> None:
        """End the requests that wait for a replica, then those that have one."""
        if self._run.job.optimizations.late_binding:
            try:
                ray.get(self._servers.global_load_balancer.end_waiting.remote(), timeout=ROUTER_SECONDS)
            except ray.exceptions.GetTimeoutError:
                self._run.note("the router did not answer a stop; requests that wait in it are not ended")
        self._engines.abort_replicas()

    # Traces of steps; see profiling.py.

    def _start_profiling(self) -> None:
        if self.curr_step_profile and not profiling.may_trace(self.config, self._run, self.global_steps):
            self.curr_step_profile = False
        super()._start_profiling()

    def _stop_profiling(self) -> None:
        traced = self.curr_step_profile
        super()._stop_profiling()
        if traced:
            profiling.tell(self.config, self._run)

    # Old log-probabilities: the update's own, where they are the same; see on_policy.py.

    def _compute_old_log_prob(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        return batch if self._old.skips(len(batch)) else super()._compute_old_log_prob(batch, metrics)

    def _compute_advantage(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        with self._old.uncorrected():
            return super()._compute_advantage(batch, metrics)

    def _update_actor(self, batch: KVBatchMeta, metrics: dict[str, Any]) -> KVBatchMeta:
        batch = super()._update_actor(batch, metrics)
        self._old.report(metrics)
        return batch

    # The order of a batch; see batch_balance.py.

    def _balance_batch(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        logging_prefix: str = "global_seqlen",
        keep_minibatch: bool = False,  # noqa: FBT001, FBT002 - verl's
    ) -> KVBatchMeta:
        batch = super()._balance_batch(batch, metrics, logging_prefix, keep_minibatch)
        ranks = max(self.actor_rollout_wg._dispatch_info[batch_balance.ACTOR]) + 1  # noqa: SLF001
        sizes = batch_balance.mini_batches(self.config, self.global_steps, has_critic=self.use_critic)
        if self._run.job.optimizations.batch_balance and not keep_minibatch:
            batch_balance.balance(batch, ranks, sizes, metrics, logging_prefix)
        if batch_balance.ACTOR in sizes:
            metrics.update(batch_balance.figures(batch, ranks, sizes[batch_balance.ACTOR]))
        return batch
