"""Count, on the driver, the ranks that have loaded the model and the rollout replicas that serve.

verl's trainer starts both in one method (`PPOTrainer._setup`, trainer/ppo/v1/trainer_base.py:230-404, 0.9.1) and waits
for all of them together. What it waits for is on the driver: one Ray task per rank, and one coroutine per replica.
Ranks write no files here, because the spool is on the head only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rljob_runtime.contract import StartStage
from rljob_runtime.spool.start_report import StartReport, count_tasks


class Starts(Protocol):
    """The trainer, as `Ranks` sees it."""

    @property
    def start(self) -> StartReport:
        """Reports what the start is doing."""


class Ranks:
    """An attribute of the trainer that holds a worker group: counts the ranks that have run its loading method.

    `_setup` assigns the group and then calls the method. A worker group calls all its ranks by `execute_all_async`,
    with the method's name behind that of the role (single_controller/ray/base.py:714-747 and 862-891, 0.9.1).
    """

    def __init__(self, stage: StartStage, method: str) -> None:
        self._stage = stage
        self._method = method
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        """Remember the attribute's name."""
        self._name = name

    def __get__(self, trainer: Any, owner: type | None = None) -> Any:  # noqa: ANN401 - verl's worker group
        """Return the group; raise AttributeError before it is assigned, as for any attribute."""
        if trainer is None:
            return self
        try:
            return trainer.__dict__[self._name]
        except KeyError:
            raise AttributeError(self._name) from None

    def __set__(self, trainer: Starts, group: Any) -> None:  # noqa: ANN401 - verl's worker group
        """Keep the group, and watch its calls until the one that loads."""
        trainer.__dict__[self._name] = group
        group.execute_all_async = self._watched(trainer.start, group, group.execute_all_async)

    def _watched(self, report: StartReport, group: Any, call: Callable[..., Any]) -> Callable[..., Any]:  # noqa: ANN401
        def execute_all_async(method: str, *arguments: Any, **options: Any) -> Any:  # noqa: ANN401 - verl's signature
            if not method.endswith(self._method):
                return call(method, *arguments, **options)
            del group.execute_all_async
            # A rank runs its tasks in order: the one before ends when its process has started.
            begun = [rank.__ray_call__.remote(_nothing) for rank in group.workers]
            loaded = call(method, *arguments, **options)
            _count(report, self._stage, begun, loaded)
            return loaded

        return execute_all_async


def _nothing(rank: object) -> None:
    """Run in a rank."""


def _count(report: StartReport, stage: StartStage, begun: list[Any], loaded: list[Any]) -> None:
    if report.is_at(StartStage.STARTING_RANKS):
        count_tasks(report, (StartStage.STARTING_RANKS, begun), (stage, loaded))
    else:
        # Another model was loaded before, in the same processes.
        report.at(stage, 0, len(loaded))
        count_tasks(report, (stage, loaded))


def count_replicas(engine: str, report: StartReport) -> None:
    """Let verl take, for this engine and in this process, a replica class that counts the replicas that serve.

    verl's registry holds a loader per engine (workers/rollout/replica.py:312-330, 0.9.1). The engine is imported when
    verl asks for the class, as before: earlier, the processes that filter the data would be forked with it.
    """
    from verl.workers.rollout.replica import RolloutReplicaRegistry

    # An engine that verl does not know is verl's to refuse.
    if (load := RolloutReplicaRegistry._registry.get(engine)) is not None:  # noqa: SLF001 - it has no other access
        count = ReplicaCount(report)
        RolloutReplicaRegistry.register(engine, lambda: _counted(load(), count))


def _counted(base: Any, count: ReplicaCount) -> Any:  # noqa: ANN401 - verl's replica class
    """Return a replica class. Replicas of reward models and of teachers have the same and are not counted."""

    class CountedReplica(base):  # type: ignore[misc] # verl ships no types
        async def launch_servers(self) -> None:
            if self.is_reward_model or self.is_teacher_model:
                await super().launch_servers()
                return
            count.began()
            await super().launch_servers()
            count.serves()

    CountedReplica.__name__ = base.__name__
    return CountedReplica


class ReplicaCount:
    """Counts the replicas of one engine, all of which begin before one of them serves."""

    def __init__(self, report: StartReport) -> None:
        self._report = report
        self._begun = 0
        self._serving = 0

    def began(self) -> None:
        """Count a replica that starts."""
        self._begun += 1
        self._report.at(StartStage.STARTING_REPLICAS, self._serving, self._begun)

    def serves(self) -> None:
        """Count a replica that has started."""
        self._serving += 1
        self._report.at(StartStage.STARTING_REPLICAS, self._serving, self._begun)
