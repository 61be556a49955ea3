"""A real run in mode SeparateAsync whose replicas are killed, first one and then both: no step and no prompt is lost.

The server of a replica is killed as a lost node ends it, with the processes of its engine left to Ray. Its devices are
free at once, as those of the pod that takes its place, so that another replica starts.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.checkpoints import prompt_ledger, saved_steps
from rljob_runtime.contract import StopMode

pytestmark = pytest.mark.long

BATCH, SAMPLES, ROWS, REPLICAS = 8, 4, 32, 2
WAIT_SECONDS = 420.0
IN_PLACE = "takes the place of a lost one"
REWARD = """
import asyncio, random
async def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    await asyncio.sleep(random.uniform(0, 0.5))
    return sum(ord(c) % 7 == ord(ground_truth) % 7 for c in solution_str) / max(len(solution_str), 1)
"""


@dataclass(frozen=True)
class Run:
    """What the run left."""

    folder: Path
    result: dict[str, Any]
    steps_without: int
    """Steps that were trained while one replica was gone."""

    @property
    def metrics(self) -> list[dict[str, float]]:
        """Return the metrics of each step."""
        return [record["metrics"] for record in self.result["steps"]]


def servers(own: Path) -> list[int]:
    """Return the processes that listen at the addresses of the replicas, which verl notes for Prometheus."""
    ports = {
        int(port) for port in re.findall(r":(\d{4,5})\b", next(own.glob("spool/**/rollout-targets.yml")).read_text())
    }
    listening = {
        row.split()[9]
        for table in ("tcp", "tcp6")
        for row in Path(f"/proc/net/{table}").read_text().splitlines()[1:]
        if row.split()[3] == "0A" and int(row.split()[1].rpartition(":")[2], 16) in ports
    }
    wanted = {f"socket:[{inode}]" for inode in listening}
    return sorted({int(link.parts[2]) for link in Path("/proc").glob("[0-9]*/fd/*") if target(link) in wanted})


def target(link: Path) -> str:
    try:
        return str(link.readlink())
    except OSError:
        return ""


def records_in(own: Path) -> list[dict[str, Any]]:
    lines = [line for path in own.glob("spool/**/steps.jsonl") for line in path.read_text().splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.fixture(scope="module")
def run(real_training: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return the run."""
    folder = tmp_path_factory.mktemp("loss")
    own, stop, said = folder / "run", folder / "stop", folder / "run-1.stderr"
    reward = folder / "slow_reward.py"
    reward.write_text(REWARD)
    overrides = {
        "reward.custom_reward_function.path": str(reward),
        "actor_rollout_ref.actor.ppo_mini_batch_size": BATCH // 2,
        "trainer.v1.separate_async.parameter_sync_step": 2,
        "trainer.v1.sampler.max_off_policy_strategy": "wait",
        "trainer.save_freq": 1,
        "trainer.max_actor_ckpt_to_keep": None,
    }
    process = real_training.begin(
        folder,
        "run",
        mode="SeparateAsync",
        rollout_devices=REPLICAS,
        steps=1000,
        stop=StopMode.AFTER_STEP.value,
        stop_when=str(stop),
        overrides=overrides,
    )

    def wait_for(what: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not what():
            assert process.poll() is None, said.read_text(errors="replace")[-4000:]
            assert time.monotonic() < deadline, said.read_text(errors="replace")[-4000:]
            time.sleep(0.2)

    def serving() -> float:
        return float(records_in(own)[-1]["metrics"]["rljob/replicas/serving"])

    try:
        wait_for(lambda: len(records_in(own)) >= 2)
        first, *_ = both = servers(own)
        assert len(both) == REPLICAS
        os.kill(first, signal.SIGKILL)
        begun = len(records_in(own))
        wait_for(lambda: said.read_text(errors="replace").count(IN_PLACE) == 1)
        trained = len(records_in(own)) - begun
        wait_for(lambda: serving() == REPLICAS)
        for pid in servers(own):
            os.kill(pid, signal.SIGKILL)
        begun = len(records_in(own))
        wait_for(lambda: len(records_in(own)) > begun + 2 and serving() == REPLICAS)
        stop.touch()
        assert process.wait(WAIT_SECONDS) == 0, said.read_text(errors="replace")[-4000:]
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    result = json.loads((folder / "run-1.stdout").read_text().splitlines()[-1])
    yield Run(folder, result, trained)
    shutil.rmtree(folder, ignore_errors=True)


def test_training_goes_on_with_the_replica_that_is_left(run: Run) -> None:
    assert run.steps_without >= 1
    assert {metrics["rljob/replicas/wanted"] for metrics in run.metrics} == {REPLICAS}
    assert 1 in {metrics["rljob/replicas/serving"] for metrics in run.metrics}
    assert run.metrics[-1]["rljob/replicas/serving"] == REPLICAS


def test_no_step_is_repeated_or_lost(run: Run) -> None:
    assert [record["step"] for record in run.result["steps"]] == list(range(1, run.result["last"] + 1))
    assert run.result["stopped"] == StopMode.AFTER_STEP.value


def test_each_row_of_the_data_is_trained_once_an_epoch_or_in_flight(run: Run) -> None:
    folder = run.folder / "run/checkpoints"
    steps = saved_steps.complete_steps(folder)
    ledgers = [json.loads((saved_steps.step_folder(folder, s) / prompt_ledger.LEDGER_FILE).read_text()) for s in steps]
    last = max(ledgers, key=lambda ledger: int(ledger["fetched"]))
    trained = [tuple(row) for ledger in ledgers for row in ledger["trainedRows"]]
    in_flight = [(epoch, row) for _, epoch, row, *_ in last["inFlight"]]
    assert Counter([*trained, *in_flight]) == Counter(divmod(number, ROWS) for number in range(last["fetched"]))
    assert last["dropped"] == {"stale": 0, "filtered": 0, "failed": 0}
    assert {metrics["rljob/prompts/unaccounted"] for metrics in run.metrics} == {0}


def test_each_loss_and_each_replacement_is_told(run: Run) -> None:
    said = (run.folder / "run-1.stderr").read_text(errors="replace")
    assert said.count("lost a replica at") == 3
    assert said.count(IN_PLACE) == 3
    assert "0 of 2 are left" in said
