"""The driver's state detects lost, repeated and wrong steps, and its group waits for every rank."""

from __future__ import annotations

import dataclasses
import threading
from pathlib import Path

import pytest

from rljob_runtime.checkpoints.saved_steps import is_whole
from rljob_runtime.contract import CONTRACT_VERSION, ExitCode, JobConfig, OverrideValue, Platform
from rljob_runtime.outcomes import RefusedError
from tests.contract_driver.collective import Group
from tests.contract_driver.settings import Settings, keep, save_every
from tests.contract_driver.state import State, StateError, after, part

JOB = JobConfig(CONTRACT_VERSION, "team-a", "sums", "uid-1", "sums-uid01-1", 1, Platform.CPU, 1, 2, 1, 40, {})


def trained(steps: int, rank: int = 1, ranks: int = 2) -> State:
    state = State(rank, ranks)
    for step in range(1, steps + 1):
        state.train(step, sum(part(step, other) for other in range(ranks)))
    return state


def test_a_saved_state_is_loaded_unchanged(tmp_path: Path) -> None:
    file = tmp_path / "actor" / "model.pt"
    trained(5).save(file, kilobytes=3)
    assert is_whole(file)
    assert State.load(file, rank=1, ranks=2) == trained(5)
    assert file.stat().st_size > 3 << 10


def test_a_truncated_file_is_not_whole(tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    trained(5).save(file, kilobytes=3)
    file.write_bytes(file.read_bytes()[:-30])
    assert not is_whole(file)


@pytest.mark.parametrize(
    "damage",
    [
        {"step": 4},
        {"rank": 0},
        {"value": after(4, 2)},
        {"value": after(5, 3)},
    ],
)
def test_the_state_of_another_rank_or_step_is_rejected(tmp_path: Path, damage: dict[str, object]) -> None:
    dataclasses.replace(trained(5), **damage).save(tmp_path / "model.pt", 0)  # type: ignore[arg-type] # the parameters are fields of State
    with pytest.raises(StateError):
        State.load(tmp_path / "model.pt", rank=1, ranks=2)


@pytest.mark.parametrize("step", [4, 5, 7])
def test_a_step_is_made_once_and_in_order(step: int) -> None:
    with pytest.raises(StateError, match=f"rank 1: step {step} follows step 5"):
        trained(5).train(step, 0)


# The group does not close its sockets: in a run, they end with the process of their rank.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_sum_waits_for_every_rank() -> None:
    groups = [Group(rank, 3) for rank in range(3)]
    sums: list[int] = []

    def reduce(rank: int) -> None:
        groups[rank].join("127.0.0.1", groups[0].port)
        sums.append(groups[rank].all_reduce(rank + 1))

    threads = [threading.Thread(target=reduce, args=(rank,), daemon=True) for rank in range(3)]
    for thread in threads[:2]:
        thread.start()
    threads[1].join(0.2)
    assert sums == []
    threads[2].start()
    for thread in threads:
        thread.join(30)
    assert sums == [6, 6, 6]


def job(**overrides: OverrideValue) -> JobConfig:
    return dataclasses.replace(JOB, overrides={key.replace("__", "."): value for key, value in overrides.items()})


def test_a_job_sets_how_long_a_step_takes() -> None:
    assert Settings.of(JOB) == Settings()
    wanted = Settings.of(dataclasses.replace(JOB, overrides={"+contract.rollout_seconds": 2, "trainer.nnodes": 1}))
    assert wanted == Settings(rollout_seconds=2.0)
    assert (save_every(JOB), keep(JOB)) == (0, None)
    assert save_every(job(trainer__save_freq=5)) == 5
    assert keep(job(trainer__max_actor_ckpt_to_keep=2)) == 2


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("+contract.rollout_second", 1.0, "UnknownOverride"),
        ("+contract.rollout_seconds", "long", "InvalidOverride"),
        ("+contract.rollout_seconds", True, "InvalidOverride"),
        ("+contract.rollout_seconds", -1, "InvalidOverride"),
    ],
)
def test_an_unknown_or_invalid_setting_is_rejected(key: str, value: OverrideValue, reason: str) -> None:
    with pytest.raises(RefusedError) as rejected:
        Settings.of(dataclasses.replace(JOB, overrides={key: value}))
    assert (rejected.value.code, rejected.value.reason) == (ExitCode.BAD_CONFIG, reason)
