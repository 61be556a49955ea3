"""A real run in each asynchronous mode that is killed, resumed and stopped in a rollout: every prompt in one place.

Rewards take some time, so that prompts are in all states when steps are saved, and one of them fails once. The epoch
ends on the way. The rows are counted from the ledgers of the steps, whose lists of trained rows the trainer writes as
verl's replay buffer gives them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.checkpoints import prompt_ledger, saved_steps
from rljob_runtime.contract import StopMode

BATCH, SAMPLES, ROWS = 8, 4, 32
KILLED_AFTER, UNITS = 3, 2
"""Steps after whose record the first attempt is killed; its storage units."""
SCORED = 3 * BATCH * SAMPLES
"""Rewards of the second attempt, after which it waits for responses for ever."""
ENOUGH_HELD = BATCH + 1
"""Held prompts with which a rollout cannot end: no more than two batches are in flight, and while the trainer trains
one of them, all of that one are complete."""
KILL_SECONDS = 1800.0
pytestmark = pytest.mark.long
STALENESS = "training/off_policy/trajectory_staleness_worst"
"""verl's own."""
OF_MODE: dict[str, dict[str, Any]] = {
    "ColocateAsync": {},
    "SeparateAsync": {
        "actor_rollout_ref.actor.ppo_mini_batch_size": BATCH // 2,
        "trainer.v1.separate_async.parameter_sync_step": 2,
    },
}
REWARD = """
import asyncio, random
from pathlib import Path
MARK, SCORED, HELD, STUCK = (Path(__file__).with_name(name) for name in ("failed", "scored", "held", "stuck"))
async def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    if ground_truth == "e" and not MARK.exists():
        MARK.touch()
        raise ValueError("the checker is busy")
    with SCORED.open("ab") as scored:
        scored.write(b".")
    if SCORED.stat().st_size > MOST:
        with HELD.open("a") as held:
            held.write(f"{extra_info['row']}\\n")
        if len(set(HELD.read_text().split())) >= ENOUGH_HELD:
            STUCK.touch()
        await asyncio.sleep(3600)
    await asyncio.sleep(random.uniform(0, 1.5))
    return sum(ord(c) % 7 == ord(ground_truth) % 7 for c in solution_str) / max(len(solution_str), 1)
"""
TOOLS = """
from verl.tools.function_tool import function_tool
@function_tool
def now() -> str:
    \"\"\"Return the time.\"\"\"
    return "noon"
"""
"""The model is random and calls none of them; that each response is a loop over turns is what the run shows."""


@dataclass(frozen=True)
class Run:
    """What both attempts left."""

    folder: Path
    mode: str
    killed: list[dict[str, Any]]
    """Records of the first attempt."""
    resumed: dict[str, Any]

    @property
    def records(self) -> list[dict[str, Any]]:
        """Return the records of the second attempt."""
        return [record for record in self.resumed["steps"] if record not in self.killed]

    def ledgers(self) -> dict[int, dict[str, Any]]:
        """Return the ledger of each saved step."""
        folder = self.folder / "run" / "checkpoints"
        steps = saved_steps.complete_steps(folder)
        return {
            step: json.loads((saved_steps.step_folder(folder, step) / prompt_ledger.LEDGER_FILE).read_text())
            for step in steps
        }


def missing(run: Run) -> int:
    """Return the prompts of a step that were not trained where it ended after the first of its updates."""
    return BATCH // 2 if run.mode == "SeparateAsync" else 0


def records_in(own: Path) -> list[dict[str, Any]]:
    lines = [line for path in own.glob("spool/**/steps.jsonl") for line in path.read_text().splitlines(keepends=True)]
    return [json.loads(line) for line in lines if line.endswith("\n")]


@pytest.fixture(scope="module", params=list(OF_MODE))
def run(request: pytest.FixtureRequest, real_training: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Return the run."""
    folder, mode = tmp_path_factory.mktemp("async"), str(request.param)
    reward = folder / "slow_reward.py"
    reward.write_text(f"MOST, ENOUGH_HELD = float('inf'), 0\n{REWARD}")
    units = "transfer_queue.backend.SimpleStorage.num_data_storage_units"
    (folder / "tools.py").write_text(TOOLS)
    overrides = {
        "actor_rollout_ref.rollout.agent.default_agent_loop": "tool_agent",
        "actor_rollout_ref.rollout.multi_turn.function_tool_path": str(folder / "tools.py"),
        "reward.custom_reward_function.path": str(reward),
        "trainer.save_freq": 1,
        "trainer.v1.sampler.max_off_policy_strategy": "wait",
        "algorithm.rollout_correction.rollout_is": "token",
        units: UNITS,
        **OF_MODE[mode],
    }
    wish: dict[str, Any] = {"mode": mode, "steps": 40, "overrides": overrides}
    if mode == "SeparateAsync":
        wish["rollout_devices"] = 2
    process = real_training.begin(folder, "run", **wish)
    deadline = time.monotonic() + KILL_SECONDS
    try:
        while len(records_in(folder / "run")) < KILLED_AFTER:
            assert process.poll() is None, (folder / "run-1.stderr").read_text(errors="replace")[-4000:]
            assert time.monotonic() < deadline
            time.sleep(0.2)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    killed = records_in(folder / "run")
    # A changed number of nodes would change the number of units. Now only every second step is saved, so that the stop
    # may have to save the step before its own.
    overrides |= {units: UNITS + 1, "trainer.save_freq": 2}
    most = (folder / "scored").stat().st_size + SCORED
    reward.write_text(f"MOST, ENOUGH_HELD = {most}, {ENOUGH_HELD}\n{REWARD}")
    stop = {"stop": StopMode.ABORT_ROLLOUT.value, "stop_when": str(folder / "stuck")}
    yield Run(folder, mode, killed, real_training(folder, "run", attempt=2, **stop, **wish))
    shutil.rmtree(folder, ignore_errors=True)


def test_the_second_attempt_continues_after_the_last_complete_step_of_the_first(run: Run) -> None:
    first, second = ([record["step"] for record in records] for records in (run.killed, run.records))
    assert first[:KILLED_AFTER] == list(range(1, KILLED_AFTER + 1))
    assert second == list(range(second[0], run.resumed["last"] + 1))
    assert KILLED_AFTER < second[0] <= first[-1] + 2, "saved before the kill, perhaps one that was not recorded"
    assert f"{BATCH * SAMPLES} responses of trained prompts were removed" in run.resumed["stderr"]


def test_each_row_of_the_data_is_trained_once_an_epoch_or_in_flight(run: Run) -> None:
    ledgers = run.ledgers()
    last = ledgers[max(ledgers)]
    trained = [tuple(row) for ledger in ledgers.values() for row in ledger["trainedRows"]]
    in_flight = [(epoch, row) for _, epoch, row, *_ in last["inFlight"]]
    assert last["fetched"] > ROWS, "the first epoch has ended"
    assert Counter([*trained, *in_flight]) == Counter(divmod(number, ROWS) for number in range(last["fetched"]))
    assert (last["trained"], last["dropped"]) == (len(trained), {"stale": 0, "filtered": 0, "failed": 0})
    # A step of several updates may end after one of them.
    assert last["trained"] in (max(ledgers) * BATCH, max(ledgers) * BATCH - missing(run))


def test_a_prompt_whose_reward_failed_is_tried_again_and_trained(run: Run) -> None:
    assert max(ledger["retried"] for ledger in run.ledgers().values()) == 1
    noted = (run.folder / "run-1.stderr").read_text(errors="replace")
    assert "prompts are tried again, because their rollout or reward raised ValueError: the checker is busy" in noted


def test_a_stop_in_a_rollout_saves_the_step_before_it_with_its_prompts_in_flight(run: Run) -> None:
    resumed, ledgers = run.resumed, run.ledgers()
    shortened = ledgers[resumed["last"]]["trained"] < resumed["last"] * BATCH
    abandoned = None if shortened else resumed["last"] + 1
    assert (resumed["stopped"], resumed["abandoned"]) == (StopMode.ABORT_ROLLOUT.value, abandoned)
    assert max(ledgers) == resumed["last"]
    assert prompt_ledger.problem_of(run.folder / f"run/checkpoints/global_step_{resumed['last']}") is None
    # Saved by the step itself, the prompts of the next one had not been fetched yet.
    in_flight = len(ledgers[resumed["last"]]["inFlight"])
    assert in_flight in ((BATCH + missing(run),) if shortened else (BATCH, 2 * BATCH))


def test_the_records_describe_the_prompts_in_flight(run: Run) -> None:
    begun_before = 0.0
    for record in [*run.killed, *run.records]:
        metrics = record["metrics"]
        ages = {key: count for key, count in metrics.items() if key.startswith("rljob/staleness/")}
        assert sum(ages.values()) == BATCH * SAMPLES
        assert max(int(key.rpartition("/")[2]) for key in ages) == metrics[f"{STALENESS}/max"]
        begun_before += sum(count for key, count in ages.items() if key != "rljob/staleness/0")
        assert metrics["rljob/prompts/unaccounted"] == 0
        assert metrics["rljob/tool_calls/failed"] == 0
        complete = record["step"] * BATCH
        assert metrics["rljob/prompts/trained"] == complete or record is run.records[-1]
        assert sum(metrics[f"rljob/queue/{state}"] for state in ("pending", "running", "finished", "failure")) == BATCH
        assert metrics["training/rollout_probs_diff_valid"] == 1
        assert not [key for key in metrics if key.startswith(("rljob/replica/", "rljob/first_dp"))]
        if run.mode == "SeparateAsync" and record is not run.records[-1]:
            assert metrics["rljob_tcp/sync_bytes"] > 0, "each replica has confirmed the hash of its weights"
    assert run.killed[0]["metrics"]["rljob/staleness/0"] == BATCH * SAMPLES
    assert begun_before > 0, "some responses were begun by weights of an earlier step"
