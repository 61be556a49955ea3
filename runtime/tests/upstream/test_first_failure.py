"""The outcome of a run whose rollouts all fail is the first exception of a worker, with its place in the user's file.

verl's own agent-loop worker, reward loop, reward manager and replay buffer run here; Ray is real, and TransferQueue and
the engine are replaced by what they would answer.
"""

from __future__ import annotations

import asyncio
import inspect
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime import first_failure
from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Phase, Platform, Progress
from rljob_runtime.outcomes import WorkerFailedError, from_error
from rljob_runtime.spool.spool import Spool
from rljob_runtime.stacks import register as stack_register

REWARD = """def compute_score(data_source, solution_str, ground_truth, extra_info):
    if not solution_str.isdigit():
        raise ValueError(f"no number in {solution_str!r}")
    return 1.0
"""
NO_TRAJECTORIES = "no materializable trajectories"


class Answering:
    """An agent loop whose engine answers at once."""

    def __init__(self, **_: Any) -> None:
        pass

    async def run(self, _: dict[str, Any], **__: Any) -> Any:
        from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput

        return AgentLoopOutput(
            prompt_ids=[1, 2], response_ids=[3], response_mask=[1], num_turns=2, metrics=AgentLoopMetrics()
        )


class Raising(Answering):
    """An agent loop with an error of its own."""

    async def run(self, _: dict[str, Any], **__: Any) -> Any:
        raise KeyError("tool")


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    import ray

    with tempfile.TemporaryDirectory(prefix="rlf-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        patch.setenv(stack_register.VARIABLE, "run-1")
        try:
            ray.init(num_cpus=2, include_dashboard=False)
            yield ray
        finally:
            ray.shutdown()


@pytest.fixture
def tags(ray: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, dict[str, Any]]:
    """Return TransferQueue's tags of the partition `train`, with the prompt that is to be generated."""
    import transfer_queue

    assert ray.is_initialized()
    first_failure.clear()
    tags: dict[str, dict[str, Any]] = {"p1": {"is_prompt": True, "status": "pending", "global_steps": 1}}

    async def put(key: str, tag: dict[str, Any], **_: Any) -> None:
        tags[key] |= tag

    monkeypatch.setattr(transfer_queue, "async_kv_put", put)
    monkeypatch.setattr(transfer_queue, "kv_list", lambda *_, **__: {"train": tags})
    monkeypatch.setattr(transfer_queue, "kv_clear", lambda *_, **__: None)
    return tags


def generate(agent: type[Answering], rewards: list[Any]) -> None:
    """Let our worker generate the responses of one prompt."""
    from omegaconf import OmegaConf
    from verl.experimental.agent_loop import agent_loop

    from rljob_runtime.verl_plugin.router.agent_loop import ReportingWorker

    made = ReportingWorker.__ray_actor_class__
    worker = made.__new__(made)
    worker.config = OmegaConf.create({"actor_rollout_ref": {"rollout": {"n": 2}}, "data": {}})
    for name in ("llm_client", "tokenizer", "processor", "hf_model_type", "dataset_cls"):
        setattr(worker, name, None)
    worker.tools, worker.mm_processor_kwargs, worker.reward_loop_worker_handles = [], {}, rewards
    agent_loop._agent_loop_registry["test"] = {"_target_": agent}
    prompt = {
        "uid": "p1",
        "agent_name": "test",
        "global_steps": 1,
        "raw_prompt": [{"role": "user", "content": "1+1?"}],
        "data_source": "sums",
        "reward_model": {"ground_truth": "2"},
        "extra_info": {},
    }
    trajectory = {"step": 1, "sample_index": 0, "rollout_n": 0, "validate": False}
    asyncio.run(worker._run_prompt(prompt, {}, trajectory))


def reward_worker(ray: Any, path: Path) -> Any:
    """Return an actor with verl's reward loop worker, which has loaded a user's function."""
    from omegaconf import OmegaConf
    from verl.experimental.reward_loop.reward_loop import RewardLoopWorker

    class Worker(RewardLoopWorker):  # type: ignore[misc]
        def _init_reward_fn(self) -> None:
            from verl.experimental.reward_loop.reward_manager import get_reward_manager_cls
            from verl.trainer.ppo.reward import get_custom_reward_fn

            tokenizer = types.SimpleNamespace(decode=lambda *_, **__: "two")
            function = get_custom_reward_fn(self.config)
            self.reward_manager = get_reward_manager_cls("naive")(self.config, tokenizer, function)

    function = {"path": str(path), "name": "compute_score"}
    config = OmegaConf.create({"reward": {"custom_reward_function": function, "reward_model": {"enable": False}}})
    return ray.remote(Worker).remote(config)


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return our trainer, whose step only samples from verl's own replay buffer."""
    from verl.trainer.ppo.v1 import trainer_base

    from rljob_runtime import hydra_config
    from rljob_runtime.training_attempt import TrainingAttempt, install
    from rljob_runtime.verl_plugin.trainer.sync_trainer import SyncTrainer

    overrides: dict[str, Any] = {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": 1,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 1,
        "actor_rollout_ref.rollout.n": 2,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.model.path": "/model",
    }
    job = JobConfig(CONTRACT_VERSION, "ns", "job", "u", "c", 1, Platform.CPU, 1, 2, 2, 40, overrides)
    spool = Spool(tmp_path / "spool")
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING, attempt=1))
    install(TrainingAttempt(job, 1, spool))
    trainer = SyncTrainer(hydra_config.compose(job, spool, tmp_path / "scratch"))
    trainer.global_steps = 1

    def step(self: Any, *_: Any) -> Any:
        return self.replay_buffer.sample(global_steps=1, partition_id="train", batch_size=1)

    monkeypatch.setattr(trainer_base.PPOTrainer, "step", step)
    return trainer


def test_an_exception_of_the_reward_function_is_the_outcome(
    ray: Any, tags: dict[str, dict[str, Any]], trainer: Any, tmp_path: Path
) -> None:
    path = tmp_path / "reward.py"
    path.write_text(REWARD)
    generate(Answering, [reward_worker(ray, path)])
    assert tags["p1"]["status"] == "failure"
    with pytest.raises(WorkerFailedError) as error:
        trainer.step({}, {})
    assert NO_TRAJECTORIES in str(error.value.__context__)
    outcome = from_error(ray.exceptions.RayTaskError("run", "traceback", error.value).as_instanceof_cause())
    assert outcome.message == f"ValueError: no number in 'two' ({path}:3)"
    assert (outcome.exit_code, outcome.reason) == (1, "RunFailed")


def test_an_exception_of_the_agent_loop_is_the_outcome(tags: dict[str, dict[str, Any]], trainer: Any) -> None:
    generate(Raising, [])
    assert tags["p1"]["status"] == "failure"
    with pytest.raises(WorkerFailedError, match=r"^KeyError: 'tool' \(.*test_first_failure\.py:\d+\)$"):
        trainer.step({}, {})


def test_without_an_exception_verls_own_error_stays(tags: dict[str, dict[str, Any]], trainer: Any) -> None:
    tags["p1"]["status"] = "failure"
    with pytest.raises(RuntimeError, match=NO_TRAJECTORIES):
        trainer.step({}, {})


@pytest.mark.usefixtures("tags")
def test_a_step_that_lacks_responses_is_noted_once(trainer: Any, tmp_path: Path) -> None:
    trainer._tell_of_failed_rollouts()
    generate(Raising, [])
    for _ in range(2):
        trainer._tell_of_failed_rollouts()
    progress = Spool(tmp_path / "spool").progress()
    assert progress is not None
    assert [note[:78] for note in progress.notes] == [
        "step 1: some responses are missing, because their rollout or reward raised Key"
    ]


@pytest.mark.usefixtures("tags")
def test_an_exception_of_an_earlier_step_is_forgotten(trainer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    generate(Raising, [])
    trainer.train_dataloader = types.SimpleNamespace(state_dict=dict)
    monkeypatch.setattr(trainer, "_take_window", lambda: None)
    trainer.on_step_begin()
    with pytest.raises(RuntimeError, match=NO_TRAJECTORIES):
        trainer.step({}, {})


def test_the_first_exception_counts_and_one_of_ray_is_its_own_cause(tags: dict[str, dict[str, Any]], ray: Any) -> None:
    assert tags
    for text in ("first", "second"):
        first_failure.note(ValueError(text))
    with pytest.raises(WorkerFailedError, match=r"^ValueError: first$"), first_failure.blamed():
        raise RuntimeError("a consequence")
    lost = ray.exceptions.RayTaskError("update", "traceback", ValueError("CUDA")).as_instanceof_cause()
    with pytest.raises(ray.exceptions.RayTaskError), first_failure.blamed():
        raise lost
    with pytest.raises(OSError, match="full"), first_failure.blamed():
        raise OSError("disk full")


def test_the_constructors_of_verl_run_in_the_actor(ray: Any) -> None:
    from rljob_runtime.verl_plugin.router.agent_loop import ReportingWorker

    # Through verl's two constructors to the first use of the configuration, which is not given here.
    with pytest.raises(ray.exceptions.ActorDiedError) as error:
        ray.get(ReportingWorker.remote(None, None).__ray_ready__.remote())
    told = "AttributeError: 'NoneType' object has no attribute 'actor_rollout_ref'"
    assert first_failure.Failure.of(error.value).text.startswith(f"{told} (")
    assert from_error(error.value).message == told


def test_verl_still_creates_the_workers_of_the_manager_that_we_name() -> None:
    from verl.trainer.main_ppo import TaskRunnerV1
    from verl.trainer.ppo.v1 import AgentLoopManagerTQ
    from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

    source = inspect.getsource(TaskRunnerV1.__ray_actor_class__.init_agent_loop_manager)
    assert 'get("agent_loop_manager_class")' in source
    assert "self.agent_loop_workers_class.options(" in inspect.getsource(AgentLoopManagerTQ._init_agent_loop_workers)
    worker = AgentLoopWorkerTQ.__ray_actor_class__
    assert "self._run_agent_loop(" in inspect.getsource(worker._run_prompt)
    assert "await self._compute_score(" in inspect.getsource(worker._agent_loop_postprocess)
    assert "await self._agent_loop_postprocess(" in inspect.getsource(worker._run_agent_loop)
