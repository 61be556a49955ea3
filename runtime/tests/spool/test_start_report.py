"""What a start is doing: published by launcher and trainer, and never later than it is true."""

from __future__ import annotations

import asyncio
import types
from collections.abc import Sequence
from typing import Any

import pytest

from rljob_runtime import ray_cluster
from rljob_runtime.contract import Phase, Progress, SpoolFile, StartProgress, StartStage
from rljob_runtime.spool.spool import Spool
from rljob_runtime.spool.start_report import StartReport, count
from rljob_runtime.training_attempt import TrainingAttempt
from rljob_runtime.verl_plugin.trainer import start_stages
from runtime.tests.conftest import MakeJob, full_volume


@pytest.fixture
def begun(spool: Spool) -> Spool:
    spool.write_progress(Progress(pod_uid="p", phase=Phase.STARTING, attempt=1))
    return spool


def shown(spool: Spool) -> tuple[str, int | None, int | None] | None:
    progress = spool.progress()
    assert progress is not None
    return None if progress.start is None else (progress.start.stage, progress.start.done, progress.start.total)


def begin_of(spool: Spool) -> float:
    progress = spool.progress()
    assert progress is not None
    assert progress.start is not None
    return progress.start.begun


def test_a_stage_is_published_with_its_begin_and_its_count(begun: Spool) -> None:
    report = StartReport(begun, 1)
    assert shown(begun) is None
    report.at(StartStage.WAITING_FOR_NODES, 1, 4)
    assert shown(begun) == ("WaitingForNodes", 1, 4)
    since = begin_of(begun)
    report.at(StartStage.WAITING_FOR_NODES, 3, 4)
    assert (shown(begun), begin_of(begun)) == (("WaitingForNodes", 3, 4), since)
    report.at(StartStage.WAITING_FOR_NODES, 5, 4)
    assert shown(begun) == ("WaitingForNodes", 4, 4)
    report.at(StartStage.CHECKING_NODES)
    assert shown(begun) == ("CheckingNodes", None, None)
    assert begin_of(begun) >= since


def passed(spool: Spool) -> list[str]:
    progress = spool.progress()
    assert progress is not None
    assert progress.start is not None
    times = [*(stage.begun for stage in progress.start.passed), progress.start.begun]
    assert times == sorted(times)
    return [stage.stage for stage in progress.start.passed]


def test_a_stage_is_published_with_those_before_it_whichever_process_was_in_them(begun: Spool) -> None:
    launcher = StartReport(begun, 1)
    launcher.at(StartStage.PREPARING)
    assert passed(begun) == []
    launcher.at(StartStage.WAITING_FOR_NODES, 1, 2)
    launcher.at(StartStage.WAITING_FOR_NODES, 2, 2)
    trainer = StartReport(begun, 1)
    trainer.at(StartStage.LOADING_MODEL, 0, 2)
    assert passed(begun) == ["Preparing", "WaitingForNodes"]
    # A resumed run validates between two rollouts; the list has each stage once.
    for stage in (StartStage.FIRST_ROLLOUT, StartStage.VALIDATING, StartStage.FIRST_ROLLOUT):
        trainer.at(stage)
    assert passed(begun) == ["Preparing", "WaitingForNodes", "LoadingModel", "Validating"]
    StartReport(begun, 2).at(StartStage.PREPARING)
    assert begun.start(2) is not None
    assert begun.start(2).passed == ()  # type: ignore[union-attr]


def test_what_is_not_new_is_not_written_again(begun: Spool) -> None:
    report = StartReport(begun, 1)
    report.at(StartStage.LOADING_DATA)
    (begun.attempt_folder(1) / SpoolFile.START).unlink()
    report.at(StartStage.LOADING_DATA)
    assert shown(begun) is None


def test_a_report_that_cannot_be_written_costs_the_start_nothing(begun: Spool) -> None:
    with full_volume(0):
        StartReport(begun, 1).at(StartStage.LOADING_DATA)
    assert shown(begun) is None


def test_a_later_attempt_does_not_show_the_stage_of_an_earlier_one(begun: Spool) -> None:
    StartReport(begun, 1).at(StartStage.LOADING_MODEL, 2, 2)
    begun.write_progress(Progress(pod_uid="p", phase=Phase.STARTING, attempt=2))
    assert shown(begun) is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"stage": 1, "begun": 2.0}'])
def test_an_unreadable_stage_hides_no_progress(begun: Spool, content: bytes) -> None:
    StartReport(begun, 1).at(StartStage.LOADING_DATA)
    (begun.attempt_folder(1) / SpoolFile.START).write_bytes(content)
    assert shown(begun) is None


def test_a_start_is_over_with_the_first_step(make_job: MakeJob, begun: Spool) -> None:
    attempt = TrainingAttempt(make_job(), 1, begun)
    attempt.start.at(StartStage.FIRST_UPDATE)
    attempt.resumed(0)
    assert shown(begun) == ("FirstUpdate", None, None)
    attempt.record(1, {})
    attempt.start.at(StartStage.FIRST_ROLLOUT)
    assert shown(begun) is None
    assert b"FirstUpdate" in (begun.attempt_folder(1) / SpoolFile.START).read_bytes()
    assert b"FirstUpdate" not in (begun.root / SpoolFile.CURRENT).read_bytes()


class Tasks:
    """Tasks that end one after another, by number."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self.seen: list[tuple[str, int | None, int | None] | None] = []

    def wait(self, pending: Sequence[int]) -> Sequence[int]:
        self.seen.append(shown(self._spool))
        return [task for task in pending if task > min(pending)]


def test_ranks_are_counted_through_both_of_their_stages(begun: Spool) -> None:
    report, tasks = StartReport(begun, 1), Tasks(begun)
    report.at(StartStage.STARTING_RANKS, 0, 2)
    count(report, [(StartStage.STARTING_RANKS, [1, 2]), (StartStage.LOADING_MODEL, [3, 4])], tasks.wait)
    assert tasks.seen == [
        ("StartingRanks", 0, 2),
        ("StartingRanks", 1, 2),
        ("LoadingModel", 0, 2),
        ("LoadingModel", 1, 2),
    ]
    assert shown(begun) == ("LoadingModel", 2, 2)


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_count_that_lags_does_not_take_the_start_back(begun: Spool, after: int) -> None:
    report, waits = StartReport(begun, 1), []

    def wait(pending: Sequence[int]) -> Sequence[int]:
        waits.append(pending)
        if len(waits) == after:
            report.at(StartStage.STARTING_REPLICAS, 0, 1)
        return pending[1:]

    report.at(StartStage.STARTING_RANKS, 0, 2)
    count(report, [(StartStage.STARTING_RANKS, [1, 2]), (StartStage.LOADING_MODEL, [3, 4])], wait)
    assert shown(begun) == ("StartingReplicas", 0, 1)
    assert len(waits) == after


def test_a_count_ends_with_a_start_that_moves_on_between_two_stages(begun: Spool) -> None:
    report = StartReport(begun, 1)

    def wait(pending: Sequence[int]) -> Sequence[int]:
        report.at(StartStage.LOADING_MODEL, 2, 2)
        return pending[1:]

    report.at(StartStage.STARTING_RANKS, 0, 1)
    count(report, [(StartStage.STARTING_RANKS, [1]), (StartStage.LOADING_CRITIC, [2])], wait)
    assert shown(begun) == ("LoadingModel", 2, 2)


def test_replicas_are_counted_as_they_serve(begun: Spool) -> None:
    counted, seen = start_stages.ReplicaCount(StartReport(begun, 1)), []
    for step in (counted.began, counted.began, counted.serves, counted.serves):
        step()
        seen.append(shown(begun))
    assert seen == [("StartingReplicas", done, total) for done, total in ((0, 1), (0, 2), (1, 2), (2, 2))]


class Replica:
    """A replica that serves after a moment."""

    def __init__(self, *, reward: bool = False, teacher: bool = False) -> None:
        self.is_reward_model = reward
        self.is_teacher_model = teacher

    async def launch_servers(self) -> None:
        await asyncio.sleep(0)


def test_only_replicas_of_the_rollout_are_counted(begun: Spool) -> None:
    kind = start_stages._counted(Replica, start_stages.ReplicaCount(StartReport(begun, 1)))
    assert kind.__name__ == "Replica"

    async def start(*replicas: Replica) -> None:
        await asyncio.gather(*[one.launch_servers() for one in replicas])

    asyncio.run(start(kind(reward=True), kind(teacher=True)))
    assert shown(begun) is None
    asyncio.run(start(kind(), kind()))
    assert shown(begun) == ("StartingReplicas", 2, 2)


class Rank:
    """A rank's actor, which records its tasks in order."""

    def __init__(self, tasks: list[str]) -> None:
        call = types.SimpleNamespace(remote=lambda _: tasks.append("nothing"))
        self.__ray_call__ = call


class Group:
    """A worker group, which calls its ranks as verl's does."""

    def __init__(self) -> None:
        self.tasks: list[str] = []
        self.workers = [Rank(self.tasks), Rank(self.tasks)]

    def execute_all_async(self, method: str, *arguments: object) -> list[tuple[object, ...]]:
        self.tasks += [method] * len(self.workers)
        return [arguments for _ in self.workers]


class Trainer:
    """A trainer that holds worker groups."""

    actor_rollout_wg = start_stages.Ranks(StartStage.LOADING_MODEL, "init_model")

    def __init__(self, spool: Spool) -> None:
        self.start = StartReport(spool, 1)


def test_only_the_method_that_loads_is_counted_and_only_once(begun: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Any] = []
    monkeypatch.setattr(start_stages, "count_tasks", lambda _, *stages: counted.append([s for s, _ in stages]))
    trainer, group = Trainer(begun), Group()
    with pytest.raises(AttributeError, match="actor_rollout_wg"):
        _ = trainer.actor_rollout_wg
    assert not hasattr(trainer, "actor_rollout_wg")
    trainer.start.at(StartStage.STARTING_RANKS, 0, 2)
    trainer.actor_rollout_wg = group
    assert trainer.actor_rollout_wg is group
    assert group.execute_all_async("actor_rollout_set_loss_fn", "f") == [("f",), ("f",)]
    assert counted == []
    for _ in range(2):
        assert group.execute_all_async("actor_rollout_init_model", 1) == [(1,), (1,)]
    assert counted == [[StartStage.STARTING_RANKS, StartStage.LOADING_MODEL]]
    assert group.tasks[2:] == ["nothing"] * 2 + ["actor_rollout_init_model"] * 4


def test_a_second_model_is_loaded_by_ranks_that_run(begun: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Any] = []
    monkeypatch.setattr(start_stages, "count_tasks", lambda _, *stages: counted.append([s for s, _ in stages]))
    trainer, group = Trainer(begun), Group()
    trainer.start.at(StartStage.LOADING_CRITIC, 2, 2)
    trainer.actor_rollout_wg = group
    group.execute_all_async("actor_rollout_init_model")
    assert counted == [[StartStage.LOADING_MODEL]]
    assert shown(begun) == ("LoadingModel", 0, 2)


def test_a_stage_of_a_newer_image_is_read() -> None:
    newer = b'{"begun": 5.0, "colour": "red", "stage": "WarmingUp"}'
    assert StartProgress.from_json(newer) == StartProgress("WarmingUp", 5.0)


def test_the_launcher_says_how_many_nodes_have_joined(make_job: MakeJob, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    joined = iter([0, 1, 4])
    monkeypatch.setattr(ray_cluster, "_nodes_with", lambda _: next(joined))
    monkeypatch.setattr(ray_cluster, "POLL_SECONDS", 0.0)
    ray_cluster.wait_for_nodes(make_job(nodes=4, devices=8), 60.0, seen.append)
    assert seen == [0, 1, 4]
