"""A run with faults, a suspension and upgrades of the operator: its status and its records.

In one run the operator is killed three times while nothing else happens. Then a worker's main process is killed, the
head pod is deleted, and the job is suspended and resumed; the operator is killed during each of these. Chart and image
are upgraded in the first attempt and rolled back in the second cluster. Each test checks one aspect of this run.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.e2e import recorded_run, runs, upgrades
from tests.e2e.recorded_run import Record
from tests.kube import Kube

pytestmark = [pytest.mark.e2e, pytest.mark.lifecycle, pytest.mark.timeout(1600 * runs.SLOWER)]

NAME = "lifecycle"
STEPS = 40 if runs.VERL else 240
"""More than the run takes until the last fault; after it the steps of the contract driver are short."""
STEP_SECONDS = 2.0
SAVE_EVERY = 5
GRACE_SECONDS = 240
RUN_SECONDS = 1500 * runs.SLOWER
UNDISTURBED_KILL_STEPS = (0, *sorted(random.sample(range(1, 7), 2)))
"""Steps at which the operator is killed in the first attempt: while the job starts, and two random ones."""


def delete_head(kube: Kube, record: Record) -> None:
    """Delete the head, which has stayed while a worker was replaced. KubeRay may replace it before its cluster goes."""
    assert len(record.heads) == 1, record.heads
    recorded_run.delete_head(kube, record)


FAULTS = ((8, recorded_run.lose_worker), (17, delete_head), (27, recorded_run.suspend))


@pytest.fixture(scope="module")
def run(kube: Kube) -> Iterator[Record]:
    job = runs.variant(
        NAME,
        trainer__steps=STEPS,
        **runs.pace(STEP_SECONDS),
        checkpoint=runs.saving(NAME, SAVE_EVERY, keep=2),
        restart={"maxInfrastructureRestarts": 3, "backoffSeconds": 1},
        stop={"graceSeconds": GRACE_SECONDS},
    )
    changes, record = [upgrades.upgrade, upgrades.downgrade], Record(NAME)
    for record in recorded_run.run_with_faults(kube, job, FAULTS, RUN_SECONDS, UNDISTURBED_KILL_STEPS):
        # A cluster keeps what has rendered it; the one whose worker was lost stays.
        if changes and record.status.get("state") == "Training" and len(record.clusters) > 2 - len(changes):
            changes.pop(0)(kube, NAME)
    yield record
    kube.delete("rljob", NAME)


def test_it_succeeds_with_every_step(run: Record) -> None:
    status = run.status
    assert status["state"] == "Succeeded", json.dumps(status, indent=1)
    assert status["progress"]["summary"] == f"{STEPS}/{STEPS}"
    assert float(status["progress"]["tokensPerSecondPerCard"]) > 0
    assert [line["step"] for line in run.lines] == list(range(1, STEPS + 1))


def test_kubectl_shows_it(kube: Kube, run: Record) -> None:
    row = kube.run("get", "rljob", NAME)
    assert "Succeeded" in row
    assert f"{STEPS}/{STEPS}" in row
    assert run.job["status"]["progress"]["tokensPerSecondPerCard"] in row


def test_killing_the_operator_of_an_undisturbed_run_changes_nothing(run: Record) -> None:
    print(run.undisturbed_kills)
    assert len(run.undisturbed_kills) == len(UNDISTURBED_KILL_STEPS)
    assert run.undisturbed_kills[0].startswith("Starting")
    assert run.created_undisturbed == (1, 1), "one cluster and one submission before the first fault"


def test_each_fault_costs_one_attempt_and_one_submission_and_a_lost_head_a_cluster(run: Record) -> None:
    status = run.status
    assert run.operator_kills == len(UNDISTURBED_KILL_STEPS) + len(FAULTS) + 1
    assert [attempt["number"] for attempt in status["attempts"]] == [1, 2, 3, 4]
    assert len(run.clusters) == 3
    assert 3 <= len(run.heads) <= 4, run.heads
    assert run.submissions == {attempt["submissionId"] for attempt in status["attempts"]}
    print(
        json.dumps(
            [{k: a.get(k) for k in ("reason", "cause", "resumedFromStep", "lastStep")} for a in status["attempts"]]
        )
    )
    worker, head, suspended, last = status["attempts"]
    assert worker["cause"] == "Infrastructure", worker
    assert worker["clusterName"] == head["clusterName"] != suspended["clusterName"]
    assert all(attempt["recovery"] for attempt in (head, suspended, last))
    assert head["outcome"] in ("Lost", "Preempted"), head
    assert (suspended["outcome"], suspended["reason"]) == ("Stopped", "Suspended")
    assert last["outcome"] == "Succeeded"
    counters = status["counters"]
    assert counters["infrastructureFailures"] + counters["preemptions"] == 2
    assert counters["userFailures"] == 0
    assert status["restarts"] == 2


def test_at_most_one_checkpoint_interval_is_repeated(run: Record) -> None:
    recorded_run.assert_repeats_at_most(run, SAVE_EVERY)


def test_a_suspended_run_has_saved_its_last_step_and_frees_its_npus_in_time(run: Record) -> None:
    recorded_run.assert_suspension_saved_in_time(run, GRACE_SECONDS + 10)


def test_usage_reports_held_and_productive_device_time(run: Record) -> None:
    usage, attempts = run.status["usage"], run.status["attempts"]
    print(json.dumps(usage))
    assert usage["deviceSeconds"] == sum(attempt["deviceSeconds"] for attempt in attempts)
    assert 0 < usage["productiveDeviceSeconds"] < usage["deviceSeconds"]
    # The accelerator class of these nodes has one device per card.
    assert usage["cardSeconds"] == usage["deviceSeconds"]
    free = datetime.fromisoformat(run.job["metadata"]["creationTimestamp"])
    for attempt in attempts:
        end, submitted = (datetime.fromisoformat(attempt[name]) for name in ("endTime", "submittedTime"))
        ran = (end - submitted).total_seconds()
        started = attempt["deviceSeconds"] / runs.DEVICES - ran
        # The workers get devices before Ray accepts the submission, and not before the previous attempt has ended.
        print(f"attempt {attempt['number']} held devices for {started:.0f} s before it ran for {ran:.0f} s")
        assert 2 < started <= (submitted - free).total_seconds() + 1
        free = end


def test_the_cluster_is_freed(kube: Kube, run: Record) -> None:
    recorded_run.assert_cluster_is_freed(kube, run)


def test_the_status_shows_the_last_record(run: Record) -> None:
    progress, last = run.job["status"]["progress"], run.lines[-1]["metrics"]
    assert float(progress["reward"]) == pytest.approx(last["critic/score/mean"], rel=1e-3)
    tps = last["rljob/tokens_per_second/step/prompt_and_response/card"]
    assert float(progress["tokensPerSecondPerCard"]) == pytest.approx(tps, rel=1e-3)
    assert float(progress["firstDPIdleRatio"]) == pytest.approx(last["rljob/first_dp_idle_ratio"], rel=1e-3, abs=1e-6)
