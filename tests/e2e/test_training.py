"""The shared run with real verl and vLLM (tests/e2e/shared.py): each test checks one aspect of it."""

from __future__ import annotations

import json
import statistics
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from rljob.cli import kubectl
from rljob.cli.report.cluster import Sources, cluster_run
from rljob.cli.report.run import Wanted
from rljob.cli.report.write_report import write_report
from rljob.launchers import LAUNCHER
from rljob.reading.samples import Recorded
from rljob.render.accelerators import BUILT_IN
from tests.e2e import recorded_run, shared
from tests.e2e.recorded_run import Record
from tests.e2e.shared import ATTEMPTS, GRACE_SECONDS, LONG, NAME, ROOT, SAVE_EVERY, STEPS, Seen
from tests.kube import Kube, wait_for
from tests.report import browser

pytestmark = [pytest.mark.e2e, pytest.mark.training, pytest.mark.timeout(4200)]
of_long_run = pytest.mark.skipif(not LONG, reason="the short run of `make test` does not get there; RLJOB_LONG=1 does")


@pytest.fixture
def run(shared_run: tuple[Record, Seen]) -> Record:
    return shared_run[0]


def test_it_succeeds_with_every_step(run: Record) -> None:
    status = run.status
    assert status["state"] == "Succeeded", json.dumps(status, indent=1)
    assert status["progress"]["summary"] == f"{STEPS}/{STEPS}"
    assert float(status["progress"]["tokensPerSecondPerCard"]) > 0
    assert [line["step"] for line in run.lines] == list(range(1, STEPS + 1))


@of_long_run
def test_it_learns(run: Record) -> None:
    rewards = [line["metrics"]["critic/score/mean"] for line in run.lines]
    first, last = statistics.mean(rewards[:5]), statistics.mean(rewards[-5:])
    print(f"reward: first five {first:.3f}, last five {last:.3f}")
    assert last >= first + 0.2
    assert last >= 0.75


def test_kubectl_shows_it(kube: Kube, run: Record) -> None:
    row = kube.run("get", "rljob", NAME)
    assert "Succeeded" in row
    assert f"{STEPS}/{STEPS}" in row
    assert run.job["status"]["progress"]["tokensPerSecondPerCard"] in row


@of_long_run
def test_its_last_checkpoint_is_evaluated_on_one_device(kube: Kube, run: Record) -> None:
    """The run has two, and FSDP loads its own checkpoints only with as many as saved them."""

    def ended() -> dict[str, Any] | None:
        steps = ((kube.get("rljob", NAME) or {})["status"].get("evaluation") or {}).get("steps") or []
        assert len(steps) <= 1, steps
        return next((entry for entry in steps if entry["state"] != "Running"), None)

    entry = wait_for("the evaluation has ended", ended, 600, every=3)
    child = kube.get("rljob", entry["name"]) or {}
    assert (entry["step"], entry["state"]) == (run.status["checkpoint"]["step"], "Succeeded"), (entry, child["status"])
    assert child["metadata"]["ownerReferences"][0]["uid"] == run.job["metadata"]["uid"]
    assert (child["spec"]["trainer"]["mode"], child["status"]["resolved"]["devices"]) == ("Evaluate", 1)
    assert entry["score"] == child["status"]["progress"]["reward"]
    # Greedy answers to the validation prompts are at least as good as the sampled ones of the training.
    assert float(entry["score"]) >= 0.7


def test_each_fault_costs_one_attempt(run: Record) -> None:
    *killed, suspended, last = run.status["attempts"]
    assert [attempt["cause"] for attempt in killed] == (["Infrastructure"] * 2 if LONG else []), killed
    if LONG:
        assert killed[1]["reason"] == "ProcessLost"
        assert "its last lines: " in killed[1]["message"]
    assert (suspended["outcome"], suspended["reason"]) == ("Stopped", "Suspended")
    assert last["outcome"] == "Succeeded"


def test_every_attempt_resumes_with_exactly_the_saved_weights(kube: Kube, run: Record) -> None:
    lines = shared.read_hashes(kube)
    saved = {(line["rank"], line["step"], line["hash"]) for line in lines if line["event"] == "save"}
    loaded = [(line["rank"], line["step"], line["hash"]) for line in lines if line["event"] == "load"]
    assert len(loaded) == 2 * (len(run.attempts) - 1), "two ranks in each attempt but the first"
    assert set(loaded) <= saved
    assert len({found for _, _, found in saved}) == len(saved), "the weights of no two steps are the same"


def test_at_most_one_checkpoint_interval_is_repeated(run: Record) -> None:
    recorded_run.assert_repeats_at_most(run, SAVE_EVERY)


def test_a_suspended_run_has_saved_its_last_step_and_frees_its_npus_in_time(run: Record) -> None:
    recorded_run.assert_suspension_saved_in_time(run, GRACE_SECONDS + 10)


def test_the_cluster_is_freed(kube: Kube, run: Record) -> None:
    recorded_run.assert_cluster_is_freed(kube, run)


def _values(text: str, name: str, **labels: str) -> list[float]:
    """Return the samples of a metric with these labels."""
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


def test_the_exporter_exposes_the_metrics_of_vllm(run: Record) -> None:
    last = next(text for text in reversed(run.scrapes) if "vllm:generation_tokens_total" in text)
    tokens = _values(last, "vllm:generation_tokens_total")
    assert len(tokens) == 2, "one counter per replica"
    assert min(tokens) > 0


def test_metrics_follow_from_the_records(run: Record) -> None:
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


def by_step(row: Recorded) -> int:
    return row.sample.step


def test_its_report_shows_every_attempt_in_a_browser(kube: Kube, run: Record) -> None:
    """The pods of the run are gone, so a temporary pod reads the records."""
    place = kubectl.Place(kube.namespace, kubeconfig=Path(kube.kubeconfig), program=kube.kubectl)
    wanted = Wanted(samples=lambda files: files)
    report = cluster_run(NAME, place, Sources(wanted=wanted), LAUNCHER, BUILT_IN, "report")
    assert [record.step for record in report.steps] == list(range(1, STEPS + 1))
    assert len(report.records) == sum(len(lines) for lines in run.attempts)
    assert [attempt.number for attempt in report.attempts] == list(ATTEMPTS)
    assert report.held_seconds == run.status["usage"]["deviceSeconds"]
    page = ROOT / "build" / "report" / "survived.html"
    write_report(report, page)
    browser.picture(page, page.with_suffix(".png"), (1280, 1700))
    seen = browser.load(page)
    assert seen.console == []
    assert all(points >= 2 for points in seen.plots.values()), seen.plots
    assert seen.plots["timeline"] == sum(record.trained for record in report.records)
    answers = {step: {row.sample.answer for row in rows} for step, rows in groupby(report.samples, by_step)}
    assert {*range(10, STEPS, 10), STEPS} <= answers.keys()
    assert all(len(found) > 1 for found in answers.values())
    readers = [pod["metadata"] for pod in kube.find("pods") if "-report-" in pod["metadata"]["name"]]
    assert all("deletionTimestamp" in metadata for metadata in readers)
