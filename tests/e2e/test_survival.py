"""A run with an eviction, a preemption as by Kueue and a frozen rank, injected as in test_lifecycle."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from tests.e2e import recorded_run, runs
from tests.e2e.recorded_run import Record
from tests.kube import Kube

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle, pytest.mark.timeout(1600 * runs.SLOWER)]

NAME = "survivor"
PROGRESS_SECONDS = 60 if runs.VERL else 30
RUN_SECONDS = 1500 * runs.SLOWER
STEPS = 26 if runs.VERL else 90
STEP_SECONDS = 2.0
IN_STACKS = "distributed_c10d.py" if runs.VERL else "in all_reduce"
WAITING = (
    ("collective|distributed",)
    if runs.VERL
    # The frozen rank cannot report its stack. The other rank waits for it in the sum that both compute.
    else (
        r"rank 0 \(.*?\) is in _receive \(\S*contract_driver/collective.py:\d+\)",
        r"rank 1 \(.*?\) did not answer, state T",
    )
)
"""Patterns in the message of a stall."""


def freeze_rank(kube: Kube, record: Record) -> None:
    """Freeze a rank. The run of the contract driver that resumes has short steps: they test nothing new."""
    recorded_run.freeze_rank(kube, record)
    recorded_run.shorten_steps(kube, record)


FAULTS = ((6, recorded_run.evict_worker), (13, recorded_run.preempt), (20, freeze_rank))


@pytest.fixture(scope="module")
def run(kube: Kube) -> Iterator[Record]:
    job = runs.variant(
        NAME,
        trainer__steps=STEPS,
        **runs.pace(STEP_SECONDS),
        checkpoint=runs.saving(NAME, 5),
        restart={"maxInfrastructureRestarts": 3, "backoffSeconds": 1},
        stop={"graceSeconds": 240},
        deadlines={"progressSeconds": PROGRESS_SECONDS},
    )
    for record in recorded_run.run_with_faults(kube, job, FAULTS, RUN_SECONDS):  # noqa: B007 - only the last one is used
        pass
    yield record
    kube.delete("rljob", NAME)


def test_it_succeeds_with_every_step(run: Record) -> None:
    assert run.status["state"] == "Succeeded", json.dumps(run.status, indent=1)
    assert [line["step"] for line in run.lines] == list(range(1, STEPS + 1))


def test_each_fault_has_its_cause(run: Record) -> None:
    for attempt in run.status["attempts"]:
        print(json.dumps(attempt))
    evicted, preempted, stalled, last = run.status["attempts"]
    assert (evicted["outcome"], evicted["cause"]) == ("Preempted", "Preemption")
    assert (preempted["outcome"], preempted["reason"]) == ("Preempted", "Preempted")
    assert (stalled["reason"], stalled["cause"]) == ("ProgressDeadlineExceeded", "Infrastructure")
    assert last["outcome"] == "Succeeded"
    assert run.status["counters"] == {"userFailures": 0, "infrastructureFailures": 1, "preemptions": 2}


def test_an_evicted_and_a_preempted_run_lose_no_step(run: Record) -> None:
    for before, after in ((0, 1), (1, 2)):
        assert run.status["attempts"][after]["resumedFromStep"] == run.attempts[before][-1]["step"]


def test_an_evicted_and_a_preempted_run_resume_in_the_same_cluster(run: Record) -> None:
    evicted, preempted, stalled, last = (attempt["clusterName"] for attempt in run.status["attempts"])
    assert evicted == preempted == stalled != last


def test_a_stall_is_detected_in_time_and_its_stacks_show_which_rank_waits(kube: Kube, run: Record) -> None:
    stalled, records = run.status["attempts"][2], run.attempts[2]
    folder = recorded_run.log_folders(kube, run.job)[2]
    stacks = [path for path in (folder / "stacks").rglob("*") if path.is_file()]
    text = "\n".join(path.read_text(errors="replace") for path in stacks)
    print(f"{len(stacks)} stacks; {stalled['message']}")
    for words in WAITING:
        assert re.search(words, stalled["message"]), stalled["message"]
    assert IN_STACKS in text
    waited = re.search(r"no step for (\d+) s", stalled["message"])
    assert waited is not None, stalled["message"]
    assert int(waited[1]) <= 2 * PROGRESS_SECONDS
    assert records
