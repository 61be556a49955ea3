"""verl's own `fit`, `_validate` and replay buffer under our trainers: a stop works in a step and in a validation.

Components that need devices or Ray are replaced by small ones that record calls.
"""

from __future__ import annotations

import dataclasses
import importlib
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import (
    CONTRACT_VERSION,
    JobConfig,
    Optimizations,
    Phase,
    Platform,
    Progress,
    RuleCondition,
    StopMode,
    StopRule,
    TrainerMode,
)
from rljob_runtime.spool.spool import Spool
from rljob_runtime.spool.stop_rules import StopRules

FIRST = 4
"""The first step of these attempts. Each draws its prompts by moving the data's position to its own number."""
SCORE = "critic/score/mean"
UNHEARD_SECONDS = 30.0
"""A validation that is not abandoned ends the test after this time."""
ROW = {"raw_prompt": ["a", "b"], "index": [0, 1]}


class Queue:
    """TransferQueue's keys, without its actors."""

    def __init__(self) -> None:
        self.prompts: dict[str, dict[str, Any]] = {}
        self._deadline = time.monotonic() + UNHEARD_SECONDS

    def kv_list(self, partition_id: str | None = None) -> dict[str, dict[str, Any]]:
        assert time.monotonic() < self._deadline, "nobody has heard the stop"
        if partition_id == "train":
            return {}
        return {"val": dict(self.prompts)} if self.prompts else {}

    def kv_batch_put(self, keys: list[str], partition_id: str, tags: list[dict[str, Any]]) -> None:
        assert partition_id == "val"
        self.prompts |= dict(zip(keys, tags, strict=True))

    def kv_clear(self, keys: list[str], partition_id: str) -> None:
        for key in keys if partition_id == "val" else ():
            del self.prompts[key]


class Replicas:
    """The checkpoint manager, whose engines are awake or asleep."""

    replicas = ()

    def __init__(self, events: list[str]) -> None:
        self._events = events

    def update_weights(self, step: int) -> None:
        self._events.append(f"weights {step}")

    def abort_replicas(self) -> None:
        self._events.append("aborted")

    def sleep_replicas(self) -> None:
        self._events.append("asleep")

    def resume_generation_replicas(self) -> None:
        self._events.append("resumed")


class Data:
    """The dataloader of the training."""

    def __init__(self) -> None:
        self.place = self.drawn = FIRST - 1

    def state_dict(self) -> dict[str, int]:
        return {"place": self.place}


class Loop:
    """An attempt whose step takes no time and whose validation is never answered."""

    def __init__(
        self, root: Path, monkeypatch: pytest.MonkeyPatch, steps: int, mode: TrainerMode = TrainerMode.SYNC
    ) -> None:
        import transfer_queue
        from verl.trainer.ppo.v1 import get_trainer_cls, trainer_base

        from rljob_runtime import hydra_config
        from rljob_runtime.launcher_overrides import TRAINERS
        from rljob_runtime.spool.step_metrics import RolloutWindow
        from rljob_runtime.training_attempt import TrainingAttempt, install
        from rljob_runtime.verl_plugin.trainer.task_runner import MODULES

        self.events: list[str] = []
        self.queue, self.data = Queue(), Data()
        for name in ("kv_list", "kv_batch_put", "kv_clear"):
            monkeypatch.setattr(transfer_queue, name, getattr(self.queue, name))
        monkeypatch.setattr(transfer_queue, "get_metrics_endpoint", lambda: None)
        spool = Spool(root / "spool")
        spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING, attempt=1))
        job = job_of(root, steps, mode)
        self.run = TrainingAttempt(job, 1, spool)
        install(self.run)
        config = hydra_config.compose(job, spool, root / "scratch")
        importlib.import_module(f"rljob_runtime.verl_plugin.trainer.{MODULES[mode]}")
        self.trainer: Any = get_trainer_cls(TRAINERS[mode])(config)
        monkeypatch.setattr(trainer_base.PPOTrainer, "step", self._step)
        monkeypatch.setattr(trainer_base.PPOTrainer, "_compute_metrics", self._compute_metrics)
        monkeypatch.setattr(self.run, "record", lambda step, _: self.events.append(f"recorded {step}"))
        self._give(RolloutWindow())

    def _give(self, window: Any) -> None:
        """Set the attributes that verl's `init` would have created."""
        trainer = self.trainer
        trainer.global_steps, trainer.steps_per_epoch = FIRST - 1, 1000
        trainer.total_training_steps = self.run.job.total_steps
        trainer.train_dataloader, trainer.checkpoint_manager = self.data, Replicas(self.events)
        trainer._loader = self.data
        trainer.val_dataloader = [ROW]
        trainer.llm_server_manager = types.SimpleNamespace(server_handles=[])
        trainer.tokenizer = None
        trainer._take_window = lambda: window
        trainer._save_checkpoint = self._save
        trainer._shutdown_dump_executor = lambda: None
        self.in_step: Callable[[], None] = lambda: None
        self.in_validation: Callable[[], None] = lambda: None

    def _step(self, *_: Any) -> Any:
        self.data.place += 1
        self.in_step()
        return types.SimpleNamespace(keys=[], tags=[], partition_id="train")

    def _compute_metrics(self, _: Any, metrics: dict[str, float], *__: Any, **___: Any) -> None:
        metrics[SCORE] = 0.95

    def _save(self) -> None:
        self.events.append(
            f"saved {self.trainer.global_steps} at {self.trainer.train_dataloader.state_dict()['place']}"
        )

    def fit(self) -> list[str]:
        """Run until verl leaves its loop; return the recorded events."""
        self.trainer.fit(types.SimpleNamespace(generate_sequences=self._generate))
        return self.events

    def _generate(self, _: Any) -> None:
        self.events.append("validates")
        self.in_validation()

    def stop(self, mode: StopMode = StopMode.AFTER_STEP) -> None:
        self.run.request_stop(mode)


def job_of(root: Path, steps: int, mode: TrainerMode) -> JobConfig:
    overrides: dict[str, Any] = {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": 32,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
        "actor_rollout_ref.rollout.n": 8,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.model.path": "/model",
        "trainer.test_freq": 1,
        "trainer.val_before_train": False,
        "trainer.v1.colocate_async.num_warmup_batches": 0,
    }
    named: dict[str, Any] = {"checkpoint_path": str(root / "checkpoints"), "mode": mode}
    return JobConfig(CONTRACT_VERSION, "ns", "job", "u", "c", 1, Platform.CPU, 1, 2, 2, steps, overrides, **named)


def target() -> StopRules:
    return StopRules([StopRule("target", SCORE, RuleCondition.ABOVE, threshold=0.9)])


@pytest.fixture
def loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(tmp_path, monkeypatch, steps=40)


@pytest.fixture
def async_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loop:
    return Loop(tmp_path, monkeypatch, steps=40, mode=TrainerMode.COLOCATE_ASYNC)


@pytest.mark.parametrize("mode", [StopMode.AFTER_STEP, StopMode.ABORT_ROLLOUT])
def test_a_validation_that_is_under_way_is_left_before_its_answers_are_there(
    loop: Loop, mode: StopMode, capfd: pytest.CaptureFixture[str]
) -> None:
    from rljob_runtime.verl_plugin.trainer.trainer import VALIDATION_SKIPPED

    asking = threading.Timer(0.3, loop.stop, [mode])
    loop.in_validation = asking.start
    events = loop.fit()
    assert events == ["weights 4", "validates", "aborted", "recorded 4", "asleep", "saved 4 at 4"]
    assert loop.queue.prompts == {}
    assert (loop.trainer.stopped_by, loop.trainer.global_steps) == (mode, 4)
    assert VALIDATION_SKIPPED.format(step=4) in capfd.readouterr().err


def test_requests_that_wait_for_a_replica_are_ended_before_those_that_have_one(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    def end_waiting() -> str:
        loop.events.append("nothing waits")
        return "reference"

    remote = types.SimpleNamespace(remote=end_waiting)
    router = types.SimpleNamespace(end_waiting=remote)
    loop.trainer.llm_server_manager.global_load_balancer = router
    loop.run.job = dataclasses.replace(loop.run.job, optimizations=Optimizations(late_binding=True))
    monkeypatch.setattr(ray, "get", lambda reference, **_: {"reference": 3}[reference])
    loop.in_validation = loop.stop
    assert loop.fit()[:4] == ["weights 4", "validates", "nothing waits", "aborted"]


def test_a_stop_that_came_before_a_validation_leaves_it_out_and_wakes_no_replica(loop: Loop) -> None:
    loop.in_step = loop.stop
    assert loop.fit() == ["saved 4 at 4", "recorded 4"]
    assert (loop.trainer.stopped_by, loop.trainer.total_training_steps) == (StopMode.AFTER_STEP, 4)


def test_a_stop_in_the_weight_sync_leaves_the_validation_out(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop.trainer.checkpoint_manager, "update_weights", lambda _: loop.stop())
    assert loop.fit() == ["recorded 4", "asleep", "saved 4 at 4"]


def test_a_stop_in_the_last_step_leaves_its_validation_out_and_the_job_has_trained_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(tmp_path, monkeypatch, steps=FIRST)
    loop.in_step = loop.stop
    assert loop.fit() == ["recorded 4"]
    assert loop.trainer.stopped_by is None


def test_verls_loop_saves_the_steps_that_the_trainer_chooses(loop: Loop) -> None:
    """The fifth step of an attempt, and then each fifth one, because no step of this loop takes time."""
    trainer = loop.trainer
    loop.run.job = dataclasses.replace(loop.run.job, auto_saves=True)
    trainer.config.trainer.test_freq = -1

    def save() -> None:
        loop._save()
        trainer._interval.saved(trainer.global_steps, 1.0)

    def step() -> None:
        if trainer.global_steps == 14:
            loop.stop()

    trainer._save_checkpoint, loop.in_step = save, step
    saved = [event for event in loop.fit() if event.startswith("saved")]
    assert saved == ["saved 8 at 8", "saved 13 at 13", "saved 14 at 14"]
    assert (progress := loop.run.spool.progress()) is not None
    assert progress.save_every_steps == 5


def test_a_stop_rule_that_matches_after_a_validation_was_left_saves_with_the_replicas_asleep(loop: Loop) -> None:
    loop.in_validation, loop.trainer._rules = loop.stop, target()
    assert loop.fit() == ["weights 4", "validates", "aborted", "recorded 4", "asleep", "saved 4 at 4"]
    assert (loop.trainer.stopped_by, loop.trainer.matched.step) == (None, 4)


def test_replicas_that_no_weights_were_sent_to_are_not_put_to_sleep_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(tmp_path, monkeypatch, steps=FIRST)
    loop.in_step, loop.trainer._rules = loop.stop, target()
    assert loop.fit() == ["recorded 4", "saved 4 at 4"]


@pytest.mark.parametrize("error", [None, ValueError("a bug in a reward function")])
def test_trackers_are_finished_with_the_run_and_take_nothing_from_its_end(
    loop: Loop, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    from verl.trainer.ppo.v1 import trainer_base

    codes: list[int] = []

    def finish(exit_code: int) -> None:
        codes.append(exit_code)
        raise RuntimeError("the tracker cannot be reached")

    def step() -> None:
        loop.stop()
        if error is not None:
            raise error

    tracker = types.SimpleNamespace(logger={}, log=lambda **_: None, finish=finish)
    monkeypatch.setattr(trainer_base, "Tracking", lambda **_: tracker)
    loop.in_step = step
    if error is None:
        assert loop.fit() == ["saved 4 at 4", "recorded 4"]
    else:
        with pytest.raises(ValueError, match="a bug in a reward function"):
            loop.fit()
    assert codes == [int(error is not None)]


def test_a_validation_before_training_hears_no_stop(loop: Loop) -> None:
    loop.stop(StopMode.ABORT_ROLLOUT)
    loop.trainer._abandon_if_stopped("val")


def test_a_rollout_and_its_greedy_baselines_continue_after_a_gentle_stop(loop: Loop) -> None:
    loop.stop()
    loop.trainer._in_loop = True
    loop.trainer._abandon_if_stopped("train")
    loop.trainer._baseline_of = {"a": "b"}
    loop.trainer._abandon_if_stopped("val")


# In mode ColocateAsync, prompts are in flight at any time: their requests end before engines lose their weights, and
# the data's position is that of now, because the prompts that a step has drawn for nothing stay in flight.


def test_a_rollout_that_is_abandoned_keeps_its_prompts_in_flight(async_loop: Loop) -> None:
    def wait() -> None:
        async_loop.stop(StopMode.ABORT_ROLLOUT)
        async_loop.trainer._abandon_if_stopped("train")

    async_loop.in_step = wait
    assert async_loop.fit() == ["aborted", "aborted", "asleep", "saved 3 at 4"]
    trainer = async_loop.trainer
    assert (trainer.stopped_by, trainer.abandoned_step, trainer.global_steps) == (StopMode.ABORT_ROLLOUT, 4, 3)


def test_a_gentle_stop_in_an_asynchronous_step_saves_it_before_anything_is_generated_again(async_loop: Loop) -> None:
    async_loop.in_step = async_loop.stop
    assert async_loop.fit() == ["saved 4 at 4", "recorded 4"]


def test_a_stop_after_generation_was_resumed_ends_it_before_the_save(async_loop: Loop) -> None:
    manager = async_loop.trainer.checkpoint_manager
    manager.resume_generation_replicas = async_loop.stop
    assert async_loop.fit() == ["weights 4", "recorded 4", "aborted", "asleep", "saved 4 at 4"]


def test_a_stop_rule_that_matches_ends_what_is_generated_before_its_save(async_loop: Loop) -> None:
    async_loop.in_validation, async_loop.trainer._rules = async_loop.stop, target()
    expected = ["weights 4", "resumed", "validates", "aborted", "recorded 4", "aborted", "asleep", "saved 4 at 4"]
    assert async_loop.fit() == expected


def test_the_first_steps_are_judged_by_what_is_nan_only(async_loop: Loop) -> None:
    metrics = {SCORE: 0.95, "actor/grad_norm": float("nan")}
    trainer = async_loop.trainer
    trainer.config.trainer.v1.colocate_async.num_warmup_batches = 1.5
    assert [list(trainer._judged(step, metrics)) for step in (1, 2, 3)] == [
        ["actor/grad_norm"],
        ["actor/grad_norm"],
        [SCORE, "actor/grad_norm"],
    ]


@pytest.mark.parametrize(
    ("window", "in_flight", "added"), [(1, 32, 32), (1, 64, 0), (1, 50, 14), (0.5, 16, 32), (0, 40, 0)]
)
def test_a_step_draws_what_its_batch_and_the_window_lack(
    async_loop: Loop, window: float, in_flight: int, added: int
) -> None:
    trainer = async_loop.trainer
    trainer.config.trainer.v1.colocate_async.num_warmup_batches = window
    trainer._flow.fetched([f"u{number}" for number in range(in_flight)], 0, range(in_flight))
    drawn: list[int] = []
    trainer._add_prompts_to_generate = drawn.append
    trainer._add_batch_to_generate = lambda: drawn.append(32)
    assert trainer.prepare_step() == {}
    assert drawn == ([added] if added else [])


def test_replicas_have_room_for_all_prompts_in_flight_and_a_validation(async_loop: Loop) -> None:
    async_loop.trainer.val_dataset = [None] * 5
    async_loop.trainer.config.trainer.v1.colocate_async.num_warmup_batches = 1
    assert async_loop.trainer._most_requests() == 2 * 32 * 8 + 5


def test_a_run_whose_prompts_all_fail_ends_instead_of_reading_its_data_to_the_end(async_loop: Loop) -> None:
    from rljob_runtime.verl_plugin.trainer.async_steps import TooManyFailuresError

    trainer, uids = async_loop.trainer, [f"u{number}" for number in range(33)]
    trainer._flow.fetched(uids, 0, range(33))
    trainer._flow._dropped((set(), set(), set(uids[:32]), None))
    trainer._abandon_if_stopped("train")
    trainer._flow._dropped((set(), set(), set(uids[32:]), None))
    with pytest.raises(TooManyFailuresError, match="33 prompts failed in step 3, each several times, and a"):
        trainer._abandon_if_stopped("train")
