"""Every figure has one form, with its unit, wherever a job is shown."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from builders import Json

from rljob.cli.local import follow
from rljob.cli.progress_line import progress_line
from rljob.cli.report.page import page
from rljob.cli.report.run import ReportRun
from rljob.cli.status import describe
from rljob.cli.verbs.list import list_page
from rljob.cli.verbs.steps import _row
from rljob.cli.watch import WITH_NODES, overview
from rljob.client.job import read_job
from rljob.core.attempts.start_diagnosis import StartReason
from rljob.core.reasons import Reason
from rljob.reading import figures
from rljob.reading.records import Record
from rljob_runtime.contract import Phase, Progress, StepMetric

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
METRICS: dict[str, float] = {
    StepMetric.REWARD: 0.9375,
    StepMetric.STEP_TPS_PER_CARD: 1234.56,
    StepMetric.CLUSTER_IDLE: 0.0009696,
    StepMetric.FIRST_DP_IDLE: 0.1234,
    StepMetric.STEP_SECONDS: 4.2051,
}
PROGRESS = {
    "step": 12,
    "totalSteps": 40,
    "summary": "12/40",
    "reward": "0.9375",
    "tokensPerSecondPerCard": "1234.6",
    "clusterIdleRatio": "0.0009696",
    "firstDPIdleRatio": "0.1234",
    "stepSeconds": "4.205",
    "eta": "2026-01-01T12:02:00Z",
}
REWARD, TPS, IDLE, FIRST, SECONDS, STEPS = "0.9375", "1235", "0.1%", "12.3%", "4.21 s", "12/40"


def job(progress: Json, state: str = "Training", **status: object) -> Json:
    attempts = [{"number": 1, "clusterName": "c", "submissionId": "s", "submittedTime": "2026-01-01T11:00:00Z"}]
    resolved = {"snapshotName": "n", "specHash": "h", "nodes": 1, "devices": 1, "cards": "1"}
    meta = {"namespace": "team", "name": "sums", "uid": "0a1b2c3d", "creationTimestamp": "2026-01-01T10:00:00Z"}
    found = {"state": state, "progress": progress, "attempts": attempts, "resolved": resolved, "restarts": 0} | status
    return {"metadata": meta, "spec": {}, "status": found}


def pages(found: Json) -> dict[str, str]:
    record = Record(1, 12, 0.0, dict(METRICS))
    report = ReportRun("team", "sums", "Training", "", "here", [record], ())
    seen = Progress(
        "pod", Phase.TRAINING, 1, step=12, total_steps=40, reward=0.9375, tokens_per_second_per_card=1234.56
    )
    return {
        "status": describe(found),
        "top": overview([found], NOW),
        "list": list_page([found], NOW, wide=False, everywhere=False),
        "watch": progress_line(5.0, "Training", found["status"]["progress"]),
        "steps": " ".join(_row(record, wide=True)),
        "report": page(report, NOW),
        "client": str(read_job(found)),
        "local run": progress_line(5.0, "Training", follow.figures(seen)),
    }


SHOWN = {
    "status": (REWARD, TPS, IDLE, FIRST, SECONDS, STEPS),
    "top": (REWARD, TPS, IDLE, STEPS, "2min", "1 card held"),
    "list": (REWARD, TPS, STEPS),
    "watch": (REWARD, TPS, IDLE, STEPS),
    "steps": (REWARD, TPS, IDLE, FIRST, SECONDS),
    "report": (REWARD, TPS, IDLE, FIRST, SECONDS),
    "client": (REWARD, STEPS),
    "local run": (REWARD, TPS, STEPS),
}


def test_a_figure_looks_the_same_wherever_it_is_shown() -> None:
    for name, text in pages(job(PROGRESS)).items():
        assert [figure for figure in SHOWN[name] if figure not in text] == [], name


def test_a_run_that_starts_again_has_no_time_left_until_it_has_a_pace() -> None:
    for state in ("Starting", "Restarting", "Succeeded"):
        found = pages(job(PROGRESS, state))
        assert "ends about" not in found["status"]
        assert "min" not in found["top"].splitlines()[-1]
    assert figures.left(job(PROGRESS)["status"], NOW) == "2min"
    assert figures.left(job(PROGRESS | {"eta": "2026-01-01T15:05:00Z"})["status"], NOW) == "3h05"


def test_an_evaluation_has_no_steps() -> None:
    found = job({"step": 0, "totalSteps": 0, "summary": "", "reward": "0.5"})
    for name, text in pages(found).items():
        assert "0/0" not in text, name
    assert "[" not in describe(found)


@pytest.mark.parametrize(
    ("reason", "cards"),
    [*((reason, "1 card") for reason in sorted(WITH_NODES)), ("PodUnschedulable", "0 cards"), ("NoPods", "0 cards")],
)
def test_cards_count_as_held_once_the_pods_have_nodes(reason: str, cards: str) -> None:
    condition = {"type": "ClusterReady", "status": "False", "reason": reason}
    assert reason in {*(each.value for each in StartReason), *(each.value for each in Reason)}
    found = job({}, "Starting", conditions=[condition], attempts=[])
    assert f"; {cards} held" in overview([found], NOW)


def test_what_is_unknown_or_no_number_is_said_so() -> None:
    assert {form(None) for form in (figures.reward, figures.rate, figures.share, figures.seconds)} == {"-"}
    assert (figures.reward("NaN"), figures.rate(float("inf")), figures.share("?")) == ("NaN", "Inf", "-")
    assert (figures.seconds(123.456), figures.rate(99.94), figures.reward(0)) == ("123 s", "99.9", "0")
