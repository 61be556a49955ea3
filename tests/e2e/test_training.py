"""The main job: the quickstart trains a model, whatever is taken from it on the way.

In one run the operator is killed at three moments at which nothing else happens; a worker's main process is killed, the
head pod is deleted, the job is suspended and resumed, with the operator killed in the middle of each. The chart is
upgraded in the first attempt and rolled back in the second. One run serves every test of this module, because it is the
expensive part; each test reads another side of what the run left behind.
"""

from __future__ import annotations

import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import pytest

from tests.e2e import quickstart, story
from tests.e2e.conftest import OPERATOR_NAMESPACE, ROOT
from tests.e2e.story import Record
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(2700)]

NAME = "quickstart"
RELEASE = "rljob-operator"
RUN_SECONDS = 2500
SAVE_EVERY = 5
PEACE = (0, *sorted(random.sample(range(1, 7), 2)))
"""Steps at which the operator is killed in the first attempt: any two, and once while the job starts."""
BLOWS = ((8, story.lose_worker), (17, story.delete_head), (27, story.suspend))


@pytest.fixture(scope="module")
def run(kube: Kube) -> Iterator[Record]:
    job = quickstart.variant(
        NAME,
        checkpoint={"path": f"{quickstart.MOUNT}/checkpoints/{NAME}", "everySteps": SAVE_EVERY, "keep": 2},
        restart={"maxInfrastructureRestarts": 3, "backoffSeconds": 1},
        stop={"graceSeconds": 240},
    )
    changes = [_upgrade, _downgrade]
    for record in story.play(kube, job, BLOWS, RUN_SECONDS, PEACE):
        begun = len(record.status.get("attempts", ()))
        if changes and record.status.get("state") == "Training" and begun > 2 - len(changes):
            changes.pop(0)()
    yield record
    kube.delete("rljob", NAME)


def _cluster(*words: str) -> str:
    command = [sys.executable, "-m", "tests.cluster", *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=120).stdout.strip()


def _helm(*words: str) -> None:
    """Change the release; the operator's pod is replaced."""
    command = [f"{_cluster('path', 'helm')}/helm", *words, "--namespace", OPERATOR_NAMESPACE]
    command += ["--kubeconfig", _cluster("kubeconfig"), "--wait", "--timeout", "120s"]
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=150)


def _upgrade() -> None:
    _helm("upgrade", RELEASE, str(ROOT / "charts/rljob-operator"), "--reuse-values", "--set", "operator.workers=4")


def _downgrade() -> None:
    _helm("rollback", RELEASE)


def test_it_succeeds_with_every_step(run: Record) -> None:
    status = run.status
    assert status["state"] == "Succeeded", json.dumps(status, indent=1)
    assert status["progress"]["summary"] == "40/40"
    assert float(status["progress"]["tokensPerSecondPerCard"]) > 0
    assert [line["step"] for line in run.lines] == list(range(1, 41))


def test_it_learns(run: Record) -> None:
    rewards = [line["metrics"]["critic/score/mean"] for line in run.lines]
    first, last = statistics.mean(rewards[:5]), statistics.mean(rewards[-5:])
    print(f"reward: first five {first:.3f}, last five {last:.3f}")
    assert last >= first + 0.2
    assert last >= 0.75


def test_kubectl_shows_it(kube: Kube, run: Record) -> None:
    row = kube.run("get", "rljob", NAME)
    assert "Succeeded" in row
    assert "40/40" in row
    assert run.job["status"]["progress"]["tokensPerSecondPerCard"] in row


def test_an_operator_that_dies_in_peace_changes_nothing(run: Record) -> None:
    print(run.killed_in_peace)
    assert len(run.killed_in_peace) == len(PEACE)
    assert run.killed_in_peace[0].startswith("Starting")
    assert run.made_in_peace == (1, 1), "one cluster and one submission until the first blow"


def test_each_blow_cost_one_attempt_one_cluster_and_one_submission(run: Record) -> None:
    status = run.status
    assert run.killed == len(PEACE) + len(BLOWS) + 1
    assert [attempt["number"] for attempt in status["attempts"]] == [1, 2, 3, 4]
    assert len(run.clusters) == 4
    assert run.submissions == {attempt["submissionId"] for attempt in status["attempts"]}
    print(
        json.dumps(
            [{k: a.get(k) for k in ("reason", "cause", "resumedFromStep", "lastStep")} for a in status["attempts"]]
        )
    )
    worker, head, suspended, last = status["attempts"]
    assert worker["cause"] == "Infrastructure", worker
    assert head["outcome"] in ("Lost", "Preempted"), head
    assert (suspended["outcome"], suspended["reason"]) == ("Stopped", "Suspended")
    assert last["outcome"] == "Succeeded"
    counters = status["counters"]
    assert counters["infrastructureFailures"] + counters["preemptions"] == 2
    assert counters["userFailures"] == 0
    assert status["restarts"] == 2


def test_little_is_lost(run: Record) -> None:
    for before, after in pairwise(run.attempts):
        assert before[-1]["step"] - after[0]["step"] <= SAVE_EVERY
        steps = [line["step"] for line in after]
        assert steps == list(range(steps[0], steps[-1] + 1))


def test_a_suspended_run_has_saved_its_last_step_and_frees_its_npus_in_time(run: Record) -> None:
    suspended, last = run.status["attempts"][2:]
    print(f"suspended: NPUs free after {run.freed_seconds:.0f} s")
    assert last["resumedFromStep"] >= suspended["lastStep"]
    assert run.attempts[3][0]["step"] == last["resumedFromStep"] + 1


def test_usage_tells_what_was_held_and_what_was_worth_it(run: Record) -> None:
    usage, attempts = run.status["usage"], run.status["attempts"]
    print(json.dumps(usage))
    assert usage["deviceSeconds"] == sum(attempt["deviceSeconds"] for attempt in attempts)
    assert 0 < usage["productiveDeviceSeconds"] < usage["deviceSeconds"]


def test_the_cluster_is_freed(kube: Kube, run: Record) -> None:
    assert run.clusters
    wait_for("no RayCluster", lambda: not kube.find("rayclusters", f"rljob.dev/job={NAME}"), 60)
    assert not kube.find("pods", f"rljob.dev/job={NAME},ray.io/cluster")


def _values(text: str, name: str, **labels: str) -> list[float]:
    """Read the samples of a metric whose labels hold these."""
    wanted = [f'{key}="{value}"' for key, value in labels.items()]
    rows = [row for row in text.splitlines() if row.startswith(f"{name}{{") and all(part in row for part in wanted)]
    return [float(row.rsplit(" ", 1)[1]) for row in rows]


def test_the_exporter_shows_tokens_per_second_while_it_runs(run: Record) -> None:
    for stage in ("rollout", "update", "step"):
        seen = [
            value
            for text in run.scrapes
            for value in _values(text, "rljob_tokens_per_second", stage=stage, tokens="prompt_and_response", per="card")
        ]
        assert seen, stage
        assert min(seen) > 0


def test_the_exporter_shows_both_idle_ratios(run: Record) -> None:
    for name in ("rljob_first_dp_idle_ratio", "rljob_cluster_idle_ratio"):
        seen = [value for text in run.scrapes for value in _values(text, name)]
        assert all(0 <= value <= 1 for value in seen)
        assert len(set(seen)) > 1, f"{name} is constant: {seen}"


def test_the_exporter_passes_on_what_vllm_counts(run: Record) -> None:
    last = next(text for text in reversed(run.scrapes) if "vllm:generation_tokens_total" in text)
    tokens = _values(last, "vllm:generation_tokens_total")
    assert len(tokens) == 2, "one counter a replica"
    assert min(tokens) > 0


def test_figures_follow_from_the_records(run: Record) -> None:
    cards = 2
    for line in (line for lines in run.attempts for line in lines):
        metrics = line["metrics"]
        tps = metrics["perf/total_num_tokens"] / metrics["timing_s/step"] / cards
        assert metrics["rljob/tokens_per_second/step/prompt_and_response/card"] == pytest.approx(tps)
        finish = [metrics["rljob/replica/0/finish_seconds"], metrics["rljob/replica/1/finish_seconds"]]
        wall = max(finish)
        assert metrics["rljob/rollout_seconds"] == pytest.approx(wall)
        assert metrics["rljob/first_dp_idle_ratio"] == pytest.approx((wall - min(finish)) / wall)
        idle = sum(wall - seconds for seconds in finish) / (wall * len(finish))
        assert metrics["rljob/cluster_idle_ratio"] == pytest.approx(idle)


def test_the_status_shows_the_last_record(run: Record) -> None:
    progress, last = run.job["status"]["progress"], run.lines[-1]["metrics"]
    assert float(progress["reward"]) == pytest.approx(last["critic/score/mean"], rel=1e-3)
    tps = last["rljob/tokens_per_second/step/prompt_and_response/card"]
    assert float(progress["tokensPerSecondPerCard"]) == pytest.approx(tps, rel=1e-3)
    assert float(progress["firstDPIdleRatio"]) == pytest.approx(last["rljob/first_dp_idle_ratio"], rel=1e-3, abs=1e-6)
