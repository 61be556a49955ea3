"""verl's own `_save_checkpoint` under our fence: what it writes, in which order, and what a paused driver omits.

The cases that pause or kill the driver share a process, because importing verl takes longer than the saves.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.checkpoints import data_identity
from rljob_runtime.checkpoints.claims import Owner, claim, publish
from rljob_runtime.checkpoints.data_identity import DataFile, DataIdentity
from rljob_runtime.checkpoints.parallelism import SPLIT_FILE
from rljob_runtime.checkpoints.saved_steps import TRACKER_FILE, complete_steps, tracked_step

HERE = Path(__file__).parent


@dataclasses.dataclass(frozen=True)
class Place:
    """The folders of a case, and what it printed."""

    root: Path
    capture: pytest.CaptureFixture[str]

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    def said(self) -> list[str]:
        return self.capture.readouterr().out.splitlines()

    def files(self) -> list[str]:
        return sorted(str(path.relative_to(self.checkpoints)) for path in self.checkpoints.rglob("*"))


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Place:
    return Place(tmp_path, capsys)


@pytest.fixture(scope="module")
def probe() -> Iterator[Any]:
    """Return the module of the cases, which imports verl."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(HERE)
        yield importlib.import_module("fenced_save_probe")


@pytest.fixture(scope="module")
def driver() -> Iterator[subprocess.Popen[str]]:
    """Return a process of its own, which saves where its standard input says."""
    command = [sys.executable, str(HERE / "fenced_save_probe.py")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1) as process:
        yield process
        process.kill()


def until(driver: subprocess.Popen[str], word: str) -> list[str]:
    """Return what the driver prints before a word; fail if it ends before."""
    assert driver.stdout is not None
    said: list[str] = []
    for line in driver.stdout:
        if line.strip() == word:
            return said
        said.append(line.strip())
    raise AssertionError(said)


def begin(driver: subprocess.Popen[str], root: Path, place: str) -> None:
    """Let the driver save below a folder, until it pauses."""
    assert driver.stdin is not None
    driver.stdin.write(f"{root} {place}\n")
    until(driver, place)


def last_words(said: list[str]) -> list[str]:
    return [line for line in said if line.split(" ", 1)[0] in ("told", "saved", "fenced")]


def test_the_tracker_is_written_by_us_and_the_jobs_own_callback_notices_nothing(here: Place, probe: Any) -> None:
    probe.save(probe.trainer_of(here.root))
    assert last_words(here.said()) == ["told 4 True False 4", "saved False"]
    assert here.files() == [".owner", "global_step_4", "global_step_4/actor", "global_step_4/data.pt", TRACKER_FILE]


def test_a_step_of_megatron_records_its_parallelism(here: Place, probe: Any) -> None:
    probe.save(probe.trainer_of(here.root, strategy="megatron"))
    assert last_words(here.said()) == ["told 4 True False 4", "saved False"]
    made = ["global_step_4", "global_step_4/actor", "global_step_4/data.pt", f"global_step_4/{SPLIT_FILE}"]
    assert here.files() == [".owner", *made, TRACKER_FILE]


def test_a_step_records_its_training_data(here: Place, probe: Any) -> None:
    trainer = probe.trainer_of(here.root)
    trainer._run.data = DataIdentity((DataFile("/data/train.parquet", 4, "ab"),), 8)
    probe.save(trainer)
    assert data_identity.read(here.checkpoints / "global_step_4") == trainer._run.data


def test_a_step_that_disappears_while_verl_loads_it_is_reported(here: Place, probe: Any) -> None:
    probe.load(probe.trainer_of(here.root))
    told = (
        f"{here.checkpoints}/global_step_4 disappeared while the run loaded it; the next attempt chooses another start"
    )
    assert last_words(here.said())[-1:] == [f"told {told}"]


def test_a_save_that_is_asynchronous_indeed_is_left_to_the_worker_that_ends_it(here: Place, probe: Any) -> None:
    probe.save(probe.trainer_of(here.root, asynchronous=True))
    assert last_words(here.said()) == ["told 4 True True None", "saved True"]


@pytest.mark.parametrize("place", ["saving", "before-mark"])
def test_a_driver_that_was_paused_in_a_save_does_not_publish(
    here: Place, driver: subprocess.Popen[str], place: str
) -> None:
    begin(driver, here.root, place)
    driver.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, driver.pid, os.WSTOPPED)
    claim(here.checkpoints, Owner("uid-1", 2))
    publish(here.checkpoints, Owner("uid-1", 2), 2)
    (here.root / "go").touch()
    driver.send_signal(signal.SIGCONT)
    assert last_words(until(driver, "done")) == ["fenced"]
    assert tracked_step(here.checkpoints) == 2
    assert "global_step_4/data.pt" not in here.files()


def test_a_driver_that_is_killed_in_a_save_leaves_the_checkpoint_before(
    here: Place, driver: subprocess.Popen[str]
) -> None:
    """The last case of the process."""
    begin(driver, here.root, "saving-6")
    driver.kill()
    driver.wait()
    assert complete_steps(here.checkpoints) == [4]


def test_the_previous_checkpoint_is_deleted_once_the_new_one_is_published(here: Place, probe: Any) -> None:
    probe.save(probe.trainer_of(here.root), 6)
    assert last_words(here.said()) == ["told 4 True False 4", "saved False", "told 6 True False 6"]
    assert here.files() == [".owner", "global_step_6", "global_step_6/actor", "global_step_6/data.pt", TRACKER_FILE]


def test_weights_that_are_nan_are_not_saved_whether_their_rule_has_matched_yet_or_not(
    here: Place, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(_: Any, metrics: dict[str, float], __: Any) -> None:
        metrics["actor/grad_norm"] = float("nan")

    monkeypatch.setattr(probe.SyncTrainer.__bases__[-1], "step", step)
    probe.diverge(probe.trainer_of(here.root))
    assert here.said()[-1] == "matched 6 6"
    assert here.files() == [".owner"]


def test_a_stop_rule_frees_the_replicas_memory_for_its_save_and_saves_a_step_once(here: Place, probe: Any) -> None:
    probe.reach_target(probe.trainer_of(here.root))
    said = [line for line in here.said() if line.split(" ", 1)[0] in ("asleep", "told", "matched")]
    assert said == ["asleep", "told 4 True False 4", "matched 4 4", "matched 4 4"]


def test_a_rollout_that_is_abandoned_is_named_and_its_prompts_are_drawn_again(here: Place, probe: Any) -> None:
    probe.give_up(probe.trainer_of(here.root, step=5), begun=True, rollout=True)
    said = here.said()
    assert said.index("aborted") < said.index("asleep") < said.index("told 4 True False 4"), said
    assert said[-1] == "given-up 5 AbortRollout 4 6"


def test_a_first_rollout_that_is_abandoned_leaves_no_checkpoint(here: Place, probe: Any) -> None:
    probe.give_up(probe.trainer_of(here.root, step=1), begun=True, rollout=True)
    assert here.said()[-1] == "given-up 1 AbortRollout 0 None"
    assert here.files() == [".owner"]


def test_a_stop_between_two_steps_ends_with_the_one_that_is_trained(here: Place, probe: Any) -> None:
    probe.give_up(probe.trainer_of(here.root, step=5), begun=True, rollout=False)
    said = here.said()
    assert said.index("asleep") < said.index("told 4 True False 4") < said.index("left"), said
    assert said[-1] == "given-up None AfterStep 4 7"


def test_a_stop_before_an_attempts_first_step_saves_nothing_again(here: Place, probe: Any) -> None:
    probe.give_up(probe.trainer_of(here.root, step=5), begun=False, rollout=False)
    assert here.said()[-2:] == ["left", "given-up None AfterStep 4 None"]
    assert here.files() == [".owner"]


def test_a_step_is_complete_only_with_a_ledger_that_describes_its_queue(
    here: Place, probe: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import transfer_queue

    from rljob_runtime.checkpoints import prompt_ledger
    from rljob_runtime.verl_plugin.trainer.colocate_trainer import ColocateAsyncTrainer
    from rljob_runtime.verl_plugin.trainer.discarded_tokens import DiscardedTokens
    from rljob_runtime.verl_plugin.trainer.prompt_flow import PromptFlow

    prompts = {"a": {"is_prompt": True, "status": "running", "global_steps": 4}}

    def save_queue(place: str, metadata: dict[str, int]) -> None:
        Path(place).mkdir()
        (Path(place) / "controller_state.pkl").write_text(str(metadata["global_steps"]))

    monkeypatch.setattr(transfer_queue, "kv_list", lambda partition_id: {partition_id: prompts})
    monkeypatch.setattr(transfer_queue, "save_checkpoint", save_queue)
    trainer = probe.trainer_of(here.root, kind=ColocateAsyncTrainer)
    trainer._flow, trainer._loader = PromptFlow(lambda _: None, DiscardedTokens()), SimpleNamespace(drawn=1)
    probe.save(trainer)
    left = [name for name in here.files() if "/" not in name]
    assert [name.partition("-")[0] for name in left] == [".owner", ".retired"], "to be deleted before the next save"
    assert "step 4 is not saved: its prompts do not add up: the loader has given 1" in here.capture.readouterr().err
    trainer._flow.fetched(["a"], 0, [0])
    probe.save(trainer)
    step = here.checkpoints / "global_step_4"
    assert sorted(name for name in here.files() if "/" not in name) == [".owner", step.name, TRACKER_FILE]
    assert prompt_ledger.problem_of(step) is None
    assert prompt_ledger.read(step).in_flight == {"a": prompt_ledger.Prompt(0, 0)}
    files = ["data.pt", "transfer_queue/controller_state.pkl"]
    assert list(json.loads((step / "prompts.json").read_text())["files"]) == files

    # A rollout after it is abandoned: what has ended since is worth another save of the same step.
    trainer.checkpoint_manager, trainer.abandoned_step = probe.Replicas(), None
    trainer._run.step_began()
    for step_before, ends in ((True, False), (True, True), (False, True)):
        prompts["a"]["status"] = "finished" if ends else "running"
        (here.checkpoints / "global_step_2" / "actor").mkdir(parents=True, exist_ok=True)
        mark = here.checkpoints / "global_step_2" / "data.pt"
        mark.write_bytes((step / "data.pt").read_bytes() if step_before else b"")
        before, trainer._flow._kept, trainer.global_steps = step.stat().st_ino, set(), 5
        trainer._abandon_rollout()
        assert (step.stat().st_ino != before) == (step_before and ends)
        assert prompt_ledger.problem_of(step) is None
        assert (here.checkpoints / TRACKER_FILE).read_text() == "4"
