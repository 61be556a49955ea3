"""What verl's driver sees of its start: one task per rank, and one coroutine per replica."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import Phase, Progress, StartStage
from rljob_runtime.spool.spool import Spool
from rljob_runtime.spool.start_report import StartReport, count_tasks
from rljob_runtime.verl_plugin.trainer import start_stages

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("verl") is None, reason="verl is not installed here; the target `make test-image` runs it"
)
SECONDS = 120.0
Shown = tuple[str, int | None, int | None]


@pytest.fixture
def begun(tmp_path: Path) -> Spool:
    spool = Spool(tmp_path / "spool")
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING, attempt=1))
    return spool


def shown(spool: Spool) -> Shown | None:
    progress = spool.progress()
    assert progress is not None
    return None if progress.start is None else (progress.start.stage, progress.start.done, progress.start.total)


def await_shown(spool: Spool, wanted: Shown) -> None:
    deadline = time.monotonic() + SECONDS
    while shown(spool) != wanted:
        assert time.monotonic() < deadline, shown(spool)
        time.sleep(0.05)


@pytest.fixture(scope="module")
def ray_here() -> Iterator[None]:
    import ray

    # Ray's sockets need a short path, and all files of this cluster their own folder.
    with tempfile.TemporaryDirectory(prefix="rst-", dir="/tmp") as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", folder)
        # Of the ranks only: in this process, verl may have been imported for another platform.
        ray.init(num_cpus=4, include_dashboard=False, runtime_env={"env_vars": {"VERL_PLATFORM": "cpu"}})
        try:
            yield
        finally:
            ray.shutdown()


def make_group(role: str) -> Any:
    """Return a worker group of two ranks as the trainer spawns it; a rank loads once its file exists."""
    import ray
    from verl.single_controller.base import Worker
    from verl.single_controller.base.decorator import Dispatch, register
    from verl.single_controller.ray import RayClassWithInitArgs, RayResourcePool, RayWorkerGroup
    from verl.single_controller.ray.base import create_colocated_worker_cls

    class Small(Worker):  # type: ignore[misc] # verl ships no types
        def __init__(self, folder: str) -> None:
            super().__init__()
            self.folder = folder

        @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
        def init_model(self, folder: str) -> int:
            while not (Path(folder) / str(self.rank)).exists():
                time.sleep(0.05)
            return int(self.rank)

        @register(dispatch_mode=Dispatch.ONE_TO_ALL)  # type: ignore[untyped-decorator]
        def set_loss_fn(self, number: int) -> int:
            return number + int(self.rank)

    classes = {role: RayClassWithInitArgs(cls=ray.remote(Small), folder="")}
    pool = RayResourcePool([2], use_gpu=False, max_colocate_count=1)
    group = RayWorkerGroup(resource_pool=pool, ray_cls_with_init=create_colocated_worker_cls(classes))
    return group.spawn(prefix_set=classes.keys())[role]


class Trainer:
    """Holds a worker group as ours does."""

    actor_rollout_wg = start_stages.Ranks(StartStage.LOADING_MODEL, "init_model")

    def __init__(self, spool: Spool) -> None:
        self.start = StartReport(spool, 1)


@pytest.mark.usefixtures("ray_here")
def test_ranks_of_a_worker_group_are_counted_while_the_driver_waits(begun: Spool, tmp_path: Path) -> None:
    trainer = Trainer(begun)
    trainer.start.at(StartStage.STARTING_RANKS, 0, 2)
    trainer.actor_rollout_wg = make_group("actor_rollout")
    assert trainer.actor_rollout_wg.set_loss_fn(5) == [5, 6]
    results: list[Any] = []
    waits = threading.Thread(target=lambda: results.append(trainer.actor_rollout_wg.init_model(str(tmp_path))))
    waits.start()
    await_shown(begun, ("LoadingModel", 0, 2))
    (tmp_path / "1").touch()
    await_shown(begun, ("LoadingModel", 1, 2))
    (tmp_path / "0").touch()
    waits.join(SECONDS)
    assert results == [[0, 1]]
    await_shown(begun, ("LoadingModel", 2, 2))
    # The group is verl's again, and may be sent to other processes.
    assert "execute_all_async" not in vars(trainer.actor_rollout_wg)


@pytest.mark.usefixtures("ray_here")
def test_a_rank_that_fails_ends_the_count(begun: Spool) -> None:
    import ray

    @ray.remote  # type: ignore[untyped-decorator]
    def fail() -> None:
        raise ValueError("no weights")

    report = StartReport(begun, 1)
    report.at(StartStage.LOADING_MODEL, 0, 1)
    thread = count_tasks(report, (StartStage.LOADING_MODEL, [fail.remote()]))
    thread.join(SECONDS)
    assert not thread.is_alive()


def test_replicas_come_from_the_registry_and_are_counted(begun: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.workers.rollout import replica

    original = replica.RolloutReplicaRegistry.get("vllm")
    monkeypatch.setattr(replica.RolloutReplicaRegistry, "_registry", {"vllm": lambda: original})
    start_stages.count_replicas("unknown", StartReport(begun, 1))
    with pytest.raises(ValueError, match="unknown"):
        replica.get_rollout_replica_class("unknown")
    seen: list[Shown | None] = []

    async def launch(self: Any) -> None:
        await asyncio.sleep(0.01 * (1 + self.replica_rank))
        seen.append(shown(begun))

    monkeypatch.setattr(original, "launch_servers", launch)
    start_stages.count_replicas("vllm", StartReport(begun, 1))
    kind = replica.get_rollout_replica_class("vllm")
    assert issubclass(kind, original)
    assert kind.__name__ == original.__name__

    def make(rank: int, **role: bool) -> Any:
        made = kind.__new__(kind)
        made.replica_rank, made.is_reward_model, made.is_teacher_model = rank, False, False
        vars(made).update(role)
        return made

    async def start(*replicas: Any) -> None:
        await asyncio.gather(*[one.launch_servers() for one in replicas])

    asyncio.run(start(make(0, is_reward_model=True), make(0, is_teacher_model=True)))
    assert shown(begun) is None
    asyncio.run(start(make(0), make(1)))
    assert seen[2:] == [("StartingReplicas", 0, 2), ("StartingReplicas", 1, 2)]
    assert shown(begun) == ("StartingReplicas", 2, 2)


def test_the_trainer_assigns_a_group_before_it_loads_and_starts_replicas_after() -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.workers.rollout.llm_server import LLMServerManager

    setup = inspect.getsource(PPOTrainer._setup)
    places = [
        setup.find(words)
        for words in (
            "self._init_dataloader()",
            "self._init_resource_pool_mgr()",
            "RayWorkerGroup(",
            "self.critic_wg = all_wg[",
            "self.critic_wg.reset()",
            "self.actor_rollout_wg = all_wg[",
            "self.actor_rollout_wg.init_model()",
            "LLMServerManager.create(",
            "self._load_checkpoint()",
        )
    ]
    assert -1 not in places
    assert places == sorted(places)
    assert "get_rollout_replica_class(" in inspect.getsource(LLMServerManager.__init__)
    launch = inspect.getsource(LLMServerManager._initialize_llm_servers)
    assert "asyncio.gather(*[server.init_hybrid(self.worker_group) for server in self.rollout_replicas])" in launch


def test_a_critic_is_loaded_by_its_reset() -> None:
    from verl.workers.engine_workers import TrainingWorker

    assert "self.engine.initialize()" in inspect.getsource(TrainingWorker.reset)
