"""verl's trainers, extended by stops on request or by rule, fenced saves and our own metrics.

`sync_trainer`, `colocate_trainer` and `separate_trainer` put this class before a trainer of verl's and register the
result under a name of its own (`trainer.v1.trainer_mode`). Only methods are overridden that verl intends to be
overridden; runtime/tests/upstream checks that they exist. Order of a step in verl's `fit` (0.9.1): on_step_begin,
prepare and sample, train, periodic save, on_step_end, validation, _compute_metrics.
"""

from __future__ import annotations

import functools
import os
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import ray
import transfer_queue as tq
from omegaconf import open_dict

from rljob_runtime import first_failure, training_attempt
from rljob_runtime.checkpoints import data_identity, parallelism, resume, saved_steps
from rljob_runtime.contract import Platform, Role, StartStage, StopMode
from rljob_runtime.input_checks import data_files
from rljob_runtime.spool.step_metrics import Batch, RolloutWindow
from rljob_runtime.spool.stop_rules import Match, StopRules
from rljob_runtime.verl_plugin.platform import cpu_defaults, role_nodes
from rljob_runtime.verl_plugin.router import replica
from rljob_runtime.verl_plugin.router.control_calls import ControlCalls
from rljob_runtime.verl_plugin.router.replica_times import from_plain
from rljob_runtime.verl_plugin.trainer import (
    agent_tools,
    drafts,
    fenced_save,
    judge,
    overlong,
    response_lengths,
    samples,
    save_interval,
    start_stages,
    tracking,
)
from rljob_runtime.verl_plugin.trainer.discarded_tokens import DiscardedTokens, padded_rows
from rljob_runtime.verl_plugin.trainer.metrics import numbers, validation_metrics
from rljob_runtime.verl_plugin.trainer.optimized_trainer import ROUTER_SECONDS, OptimizedTrainer

if TYPE_CHECKING:
    from omegaconf import DictConfig
    from verl.experimental.agent_loop import AgentLoopManager
    from verl.trainer.ppo.v1.replay_buffer import KVBatchMeta, ReplayBuffer

    from rljob_runtime.spool.start_report import StartReport

STOP_POLL_SECONDS = 0.2
"""How often a rollout in progress checks for a stop request."""
VALIDATION_SKIPPED = "rljob: the validation of step {step} is skipped, because a stop was requested"


class StepAbandonedError(BaseException):
    """Ends a step that has trained nothing. A BaseException, so that no `except Exception` catches it."""


class ValidationAbandonedError(BaseException):
    """Ends a validation within the loop. A BaseException for the same reason."""


class RLJobTrainer(OptimizedTrainer):
    """The trainer of one attempt."""

    VERL_MODE: ClassVar[str]
    """verl's name of the mode. verl compares it with literals in many places; another name would select other rules."""

    # Attributes of the base class, which has no types.
    global_steps: int
    total_training_steps: int
    steps_per_epoch: int
    train_dataset: Any
    val_dataset: Any
    tokenizer: Any
    train_dataloader: Any
    checkpoint_callback: Any
    resource_pool_manager: Any
    reward_loop_manager: Any
    logger: Any = None
    """verl's Tracking, set by its `fit`."""
    _begins_epoch = False
    """Whether the step to start from was saved with other data, whose place in it means nothing."""
    actor_rollout_wg = start_stages.Ranks(StartStage.LOADING_MODEL, "init_model")
    critic_wg = start_stages.Ranks(StartStage.LOADING_CRITIC, "reset")

    def __init__(self, config: DictConfig) -> None:
        self._run = training_attempt.current()
        self.stopped_by: StopMode | None = None
        self.abandoned_step: int | None = None
        self.matched: Match | None = None
        self.evaluation: dict[str, float] | None = None
        self._rules = StopRules(self._run.job.stop_rules)
        self._window = RolloutWindow()
        self._discarded = DiscardedTokens()
        self._calls = ControlCalls()
        self._drafts = drafts.DraftExchange(self._run.job.drafts)
        self._judge = judge.StepCounts(None, self._run.note)
        self._in_loop = False
        self._lossy = False
        self._awake = False
        self._nan: str | None = None
        self._samples = samples.Sampler(self._run, config)
        self._take_over(config)
        super().__init__(config)
        self._publisher = fenced_save.Publisher(self.checkpoint_callback, self._run, self._seal)
        self.checkpoint_callback = self._publisher

    def _take_over(self, config: DictConfig) -> None:
        """Disable in verl's configuration what this class does itself."""
        with open_dict(config):
            config.trainer.v1.trainer_mode = self.VERL_MODE
            self._overlong = overlong.take_over(config)
            self._run.keep = fenced_save.take_limit(config)
        self._run.split = parallelism.split(config)
        self._interval = save_interval.SaveInterval(save_interval.loss_seconds(self._run.job.devices, os.environ))

    # Waiting for generation: the only place where a rollout or a validation can be abandoned.

    def _build_replay_buffer(self) -> ReplayBuffer:
        buffer = super()._build_replay_buffer()
        if self._run.job.platform is Platform.CPU:
            buffer.poll_interval = cpu_defaults.POLL_SECONDS

        def wait(replay_buffer: ReplayBuffer, partition_id: str, last_debug_time: float) -> float:
            deadline = time.monotonic() + replay_buffer.poll_interval
            while True:
                self._abandon_if_stopped(partition_id)
                if partition_id == "train":
                    self._calls.poll(replica.questions(self._engines.replicas))
                left = deadline - time.monotonic()
                if left <= 0:
                    return last_debug_time
                time.sleep(min(STOP_POLL_SECONDS, left))

        buffer._wait_for_next_poll = types.MethodType(wait, buffer)  # noqa: SLF001
        self._discarded.watch(buffer)
        self._samples.watch(buffer)
        return buffer

    def _abandon_if_stopped(self, partition_id: str) -> None:
        """End a wait for responses that a stop has made useless."""
        if self._waits_for_a_rollout(partition_id):
            if self._run.stop_mode() is StopMode.ABORT_ROLLOUT:
                raise StepAbandonedError
        elif self._in_loop and self._run.stop_mode() is not None:
            raise ValidationAbandonedError

    def _waits_for_a_rollout(self, partition_id: str) -> bool:
        """Return whether responses in a partition of the queue are awaited for training."""
        return partition_id == "train"

    # What the start is doing; see start_stages.py.

    @property
    def start(self) -> StartReport:
        """Reports it."""
        return self._run.start

    def _setup(self) -> None:
        # The validation data is read before the first replica is created.
        level = replica.possible_level(self._run.job.optimizations.sleep_level, self._run.note)
        replica.register(self._most_requests, level)
        start_stages.count_replicas(self.config.actor_rollout_ref.rollout.name, self.start)
        with judge.creating(self.config, apart=bool(self._run.job.groups)):
            super()._setup()
        self._judge = judge.StepCounts(self.reward_loop_manager.reward_router_address, self._run.note)

    def _init_resource_pool_mgr(self) -> None:
        self.start.at(StartStage.STARTING_RANKS, 0, self._run.job.devices_of(Role.TRAINER))
        super()._init_resource_pool_mgr()
        if self._run.job.groups:
            pools = self.resource_pool_manager
            self.resource_pool_manager = role_nodes.RolePools(pools.resource_pool_spec, pools.mapping)

    def on_init_end(self) -> None:
        """Send the weights to the replicas."""
        self.start.at(StartStage.SENDING_WEIGHTS)
        super().on_init_end()

    # The run from start to end.

    def _init_dataloader(self) -> None:
        """Count long prompts, and refuse too few, before verl creates the first worker."""
        self.start.at(StartStage.LOADING_DATA)
        with overlong.Counter(self._overlong, self.config, self._run.note).watching():
            super()._init_dataloader()
        agent_tools.require_description(self.config, self.train_dataset)
        if self.steps_per_epoch == 0 and not self.config.trainer.get("val_only", False):
            # verl divides by it after the models are loaded.
            seen = f"the dataset of data.train has {len(self.train_dataset)} prompts"
            raise data_files.too_small(seen, int(self.config.data.train_batch_size))
        if not self.config.trainer.get("val_only", False):
            self._identify_data()

    @property
    def _resumed_step(self) -> Path | None:
        """Return the folder of the step that the attempt starts from."""
        trainer = self.config.trainer
        return Path(trainer.resume_from_path) if trainer.resume_mode == "resume_path" else None

    def _identify_data(self) -> None:
        """Refuse other data than that of the step to start from, or let the run begin a new epoch."""
        self._run.data = data_identity.of(self.config, len(self.train_dataset))
        if (step := self._resumed_step) is not None:
            reason = data_identity.begins_epoch(step, self._run.data, self._run.job)
            self._begins_epoch = reason is not None
            if reason is not None:
                self._run.note(reason)

    def _load_checkpoint(self) -> None:
        if (step := self._resumed_step) is not None:
            self.start.at(StartStage.LOADING_CHECKPOINT)
        loader = self.train_dataloader
        loader.load_state_dict = functools.partial(self._load_place, loader.load_state_dict)
        try:
            with resume.loading(step):
                super()._load_checkpoint()
        finally:
            del loader.load_state_dict
        self._run.resumed(self.global_steps)

    def _load_place(self, load: Callable[[dict[str, Any]], None], state: dict[str, Any]) -> None:
        """Continue at a step's place in the data."""
        if not self._begins_epoch:
            load(state)

    def on_train_begin(self) -> None:
        """Record the end of the validation before training, and publish the address of the queue's metrics."""
        super().on_train_begin()
        self._in_loop = True
        if endpoint := tq.get_metrics_endpoint():
            self._run.spool.write_queue_target(endpoint)

    def on_step_begin(self) -> None:
        """Start the replicas' clock.

        A stop may have arrived after the check in on_step_end: during the weight transfer, a validation (which it
        ends), or verl's loggers.
        """
        if (mode := self._run.stop_mode()) is not None:
            self._step_back(mode)
            raise StepAbandonedError
        super().on_step_begin()
        self.start.at(StartStage.FIRST_ROLLOUT)
        first_failure.clear()
        self._run.step_began()
        self._decide_to_save()
        self._take_window()

    def on_step_end(self) -> None:
        """Read the replicas' clock, then stop if requested."""
        # All responses of the step's rollout have arrived by now, and those of a validation have not started.
        self._window = self._take_window()
        self._tell_of_failed_rollouts()
        mode = self._run.stop_mode()
        self._awake = mode is None
        if mode is None:
            super().on_step_end()
            return
        # The weights need not be sent to the replicas: nothing is generated any more, and a validation is skipped too.
        self.timing_raw.setdefault("update_weights", 0.0)
        if self.global_steps < self.total_training_steps:
            self.stopped_by = mode
            self._save_once()
            # End by the loop's own condition, so that the step is logged and the queue cleared.
            self.total_training_steps = self.global_steps

    def _tell_of_failed_rollouts(self) -> None:
        """Report, once, that a step or a validation lacks responses because a worker raised."""
        if not self._lossy and (failure := first_failure.noted()) is not None:
            self._lossy = True
            self._run.note(f"step {self.global_steps}: {self._loss_of(failure.text)}")

    def _loss_of(self, failure: str) -> str:
        """Return what an exception in a rollout or a reward means."""
        return f"some responses are missing, because their rollout or reward raised {failure}"

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:
        """Train one step, or abandon its rollout."""
        try:
            with first_failure.blamed():
                batch = super().step(metrics, timing_raw)
        except StepAbandonedError:
            self._abandon_rollout()
            raise
        # The rules are evaluated after the periodic save, but broken weights must not replace a good checkpoint.
        self._nan = self._rules.nan_of(numbers(metrics))
        return batch

    def fit(self, agent_loop_manager: AgentLoopManager) -> None:
        """Train until the last step or a stop."""
        tracking.prepare(self.config, self._run.job, self.global_steps)
        failed = True
        try:
            self._fit(agent_loop_manager)
            failed = False
        finally:
            if self.logger is not None:
                tracking.finish(self.logger, failed=failed)

    def _fit(self, agent_loop_manager: AgentLoopManager) -> None:
        try:
            super().fit(agent_loop_manager)
        except StepAbandonedError:
            self.on_train_end()
            self._shutdown_dump_executor()

    def _abandon_rollout(self) -> None:
        self._abort_requests()
        self.abandoned_step = self.global_steps
        self._step_back(StopMode.ABORT_ROLLOUT)

    def _step_back(self, mode: StopMode) -> None:
        """End with step k-1 if step k has trained nothing: the weights are still those of k-1."""
        self._sleep()
        self.stopped_by = mode
        self.global_steps -= 1
        if self.global_steps > 0 and self._run.has_begun:
            self._save_step_before()
        # Otherwise nothing was trained: a restart from the same point is equivalent.

    def _save_step_before(self) -> None:
        """Save step k-1 after step k has begun."""
        self._save_once()

    # Saving.

    def _sleep(self) -> None:
        """Put the replicas to sleep. Awake since the weight transfer, they hold device memory that a save needs."""
        self.checkpoint_manager.sleep_replicas()
        self._awake = False

    def _seal(self, made: Path) -> None:
        """Complete the folder of a step before it gets its final name."""

    def _decide_to_save(self) -> None:
        """Set verl's interval to this step where it is to be saved, else to a number that does not divide it."""
        if self._run.job.auto_saves:
            is_due = self._interval.is_due(self.global_steps, self._run.step_seconds)
            self.config.trainer.save_freq = self.global_steps + (not is_due)
            self._run.show_interval(self._interval.steps(self._run.step_seconds))

    def _save_is_due(self) -> bool:
        folder = self._run.checkpoint_folder
        return folder is not None and saved_steps.tracked_step(folder) != self.global_steps

    def _save_once(self) -> None:
        if self._save_is_due():
            self._save_checkpoint()

    def _prepare_save(self) -> None:
        """Make room for the step. Raises FencedError if the folder has another owner."""
        self._run.clear(self.global_steps)

    def _save_checkpoint(self) -> None:
        """Save as verl does. Ownership is checked before the first byte, before verl's mark and before the tracker."""
        if self._nan is not None:
            print(f"rljob: step {self.global_steps} is not saved: {self._nan} is NaN", file=sys.stderr, flush=True)  # noqa: T201
            return
        self._prepare_save()
        begun, dataloader = time.monotonic(), self.train_dataloader
        try:
            with self._publisher.publishes(self.config, behind=self._writes_behind()) as folder:
                made = None if folder is None else saved_steps.step_folder(folder, self.global_steps)
                self.train_dataloader = fenced_save.FencedState(dataloader, self._run, made)
                super()._save_checkpoint()
        finally:
            self.train_dataloader = dataloader
        self._interval.saved(self.global_steps, time.monotonic() - begun)
        self._finish_save(begun)

    def _writes_behind(self) -> bool:
        """Return whether the ranks write the step while the run continues."""
        return False

    def _finish_save(self, begun: float) -> None:
        """Report a save that began at that time of the monotonic clock."""
        self._run.saved(self.global_steps, time.monotonic() - begun)

    def on_sample_end(self) -> None:
        """Record that the first rollout is over."""
        super().on_sample_end()
        self.start.at(StartStage.FIRST_UPDATE)

    # Metrics.

    def _val_metrics_update(
        self,
        data_sources: list[str],
        sample_uids: list[str],
        reward_extra_infos_dict: dict[str, list[Any]],
        sample_turns: list[Any],
        **options: Any,  # noqa: ANN401 - verl's
    ) -> dict[str, float]:
        """Add one metric over all of data.validation to verl's metrics, which are per data source."""
        metrics: dict[str, float] = super()._val_metrics_update(
            data_sources, sample_uids, reward_extra_infos_dict, sample_turns, **options
        )
        self._samples.after_validation(self.global_steps, reward_extra_infos_dict)
        return metrics | validation_metrics(reward_extra_infos_dict["reward"])

    def _maybe_log_val_generations(self, inputs: list[str], outputs: list[str], scores: list[float]) -> None:
        """Remember the answers of a validation."""
        self._samples.validated(inputs, outputs, scores)
        super()._maybe_log_val_generations(inputs, outputs, scores)

    def _validate(self) -> dict[str, float]:
        """Record a validation before training as a separate step. Later validations belong to their step."""
        if self._in_loop:
            return self._validate_unless_stopped()
        self.start.at(StartStage.VALIDATING)
        metrics = self._validated()
        only = bool(self.config.trainer.get("val_only", False))
        self._run.record_validation(self.global_steps, numbers(metrics), only=only)
        if only:
            self.evaluation = numbers(metrics)
        return metrics

    def _validated(self) -> dict[str, float]:
        with first_failure.blamed():
            metrics: dict[str, float] = super()._validate()
        self._tell_of_failed_rollouts()
        return metrics

    def _validate_unless_stopped(self) -> dict[str, float]:
        """Validate a step. After a stop request return no metrics, because a grace period may be running."""
        if self._run.stop_mode() is None:
            try:
                return self._validated()
            except ValidationAbandonedError:
                self._abandon_validation()
        print(VALIDATION_SKIPPED.format(step=self.global_steps), file=sys.stderr, flush=True)  # noqa: T201
        return {}

    def _abandon_validation(self) -> None:
        self._abort_requests()
        tq.kv_clear(keys=list(tq.kv_list(partition_id="val").get("val", ())), partition_id="val")

    def _take_window(self) -> RolloutWindow:
        router = self._servers.global_load_balancer
        try:
            return from_plain(ray.get(router.take_window.remote(), timeout=ROUTER_SECONDS))
        except ray.exceptions.GetTimeoutError:
            self._run.note("the router did not answer; the idle times of this step are missing")
            return RolloutWindow()

    def _balance_batch(self, batch: KVBatchMeta, *rest: Any, **options: Any) -> KVBatchMeta:  # noqa: ANN401 - verl's
        """Record the lengths of the responses before they are reordered."""
        self._run.record_lengths(response_lengths.lines(batch.keys, batch.tags))
        return super()._balance_batch(batch, *rest, **options)

    def _compute_metrics(
        self,
        batch: KVBatchMeta,
        metrics: dict[str, Any],
        timing_raw: dict[str, float],
        global_steps: int,
        epoch: int,
    ) -> None:
        """Add our metrics to verl's and record the step. verl's own loggers run right after this."""
        super()._compute_metrics(batch, metrics, timing_raw, global_steps, epoch)
        metrics.update(self._drafts.after_step(self._servers.server_handles, batch))
        answers = Batch(len(batch.tags), padded_rows(batch.tags), self._discarded.take())
        metrics.update(self._run.own_metrics(numbers(metrics), self._window, answers) | self._calls.take())
        metrics.update(self._figures_of_mode(batch) | agent_tools.calls(self.config, batch) | self._judge.take())
        recorded = numbers(metrics)
        self._run.record(global_steps, recorded)
        last = global_steps >= self.total_training_steps
        self._samples.after_step(global_steps, batch, self.tokenizer, last=last)
        self._apply_stop_rules(global_steps, recorded)

    def _figures_of_mode(self, batch: KVBatchMeta) -> dict[str, float]:  # noqa: ARG002 - of one mode
        """Return the metrics of a step that only the mode of this trainer has."""
        return {}

    def _judged(self, step: int, metrics: dict[str, float]) -> dict[str, float]:  # noqa: ARG002 - of one mode
        """Return the metrics of a step that stop rules may judge."""
        return metrics

    def _apply_stop_rules(self, step: int, metrics: dict[str, float]) -> None:
        """End the run after this step if a stop rule matches."""
        self.matched = self._rules.observe(step, self._judged(step, metrics))
        for warning in self._rules.warnings(metrics):
            print(f"rljob: {warning}", file=sys.stderr, flush=True)  # noqa: T201
        if self.matched is not None:
            if not self.matched.breaks_weights() and self._save_is_due():
                if self._awake:
                    self._sleep()
                self._save_checkpoint()
            # As in on_step_end, the loop's own condition ends the run after the step was logged.
            self.total_training_steps = step
