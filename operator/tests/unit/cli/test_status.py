"""`rljob status`: the output for a job, and the error if the cluster is unreachable."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rljob.cli import bounded_process
from rljob.cli.main import main
from rljob.cli.status import describe, progress_bar

JOB: dict[str, Any] = {
    "metadata": {"namespace": "team-a", "name": "sums"},
    "status": {
        "state": "Training",
        "reason": "StepSeen",
        "message": "step 12 of 40",
        "progress": {
            "step": 12,
            "totalSteps": 40,
            "reward": "0.71",
            "tokensPerSecondPerCard": "310.2",
            "stepSeconds": "3.7",
            "clusterIdleRatio": "0.12",
            "saveEverySteps": 35,
            "eta": "2026-01-01T00:02:00Z",
        },
        "rayCluster": {"name": "sums-abcde-1", "dashboardURL": "http://10.0.0.1:8265"},
        "conditions": [
            {
                "type": "Validated",
                "status": "True",
                "reason": "Valid",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
                "message": "",
            }
        ],
        "attempts": [
            {
                "number": 1,
                "clusterName": "sums-abcde-1",
                "submissionId": "sums-abcde-1-1",
                "submittedTime": "2026-01-01T00:01:00Z",
                "lastStep": 12,
            }
        ],
    },
}
PAGE = """\
team-a/sums  Training
StepSeen: step 12 of 40

[#########.....................] 12/40
reward 0.71  TPS/card 310  step 3.7 s  DP idle 12.0%  ends about 2026-01-01T00:02:00Z

RayCluster sums-abcde-1  http://10.0.0.1:8265

CONDITION  STATUS  REASON  SINCE                 MESSAGE
Validated  True    Valid   2026-01-01T00:00:00Z

ATTEMPT  RAYCLUSTER    SUBMITTED             ENDED  LAST STEP  OUTCOME
1        sums-abcde-1  2026-01-01T00:01:00Z  -      12         running"""


def test_the_page_shows_state_figures_conditions_and_attempts() -> None:
    assert describe(JOB) == PAGE


def test_the_page_has_the_last_checkpoint_and_the_evaluations() -> None:
    saved = {"step": 10, "path": "/data/ckpt", "savedTime": "2026-01-01T00:01:30Z"}
    entry = {"step": 10, "name": "sums-0a1b2-e10", "state": "Succeeded", "score": "0.75"}
    page = describe({**JOB, "status": {**JOB["status"], "checkpoint": saved, "evaluation": {"steps": [entry]}}})
    assert "checkpoint of step 10, saved 2026-01-01T00:01:30Z, in /data/ckpt; every 35 steps, as decided" in page
    assert "10              Succeeded  0.75   sums-0a1b2-e10  -" in page


def test_only_a_job_that_trains_has_a_time_of_its_end() -> None:
    assert "ends about" in describe(JOB)
    assert "ends about" not in describe({**JOB, "status": {**JOB["status"], "state": "Suspended"}})


def test_the_step_of_the_attempt_that_runs_is_that_of_the_progress() -> None:
    (attempt,) = JOB["status"]["attempts"]
    running = {name: value for name, value in attempt.items() if name != "lastStep"}
    rows = describe({**JOB, "status": {**JOB["status"], "attempts": [running]}}).splitlines()
    assert rows[-1].split()[4] == "12"
    ended = {**running, "endTime": "2026-01-01T00:03:00Z", "lastStep": 7, "outcome": "Stopped"}
    status = {**JOB["status"], "attempts": [ended]}
    page = describe({"metadata": {**JOB["metadata"], "uid": "0a1b2c3d"}, "status": status})
    assert [row.split()[4] for row in page.splitlines() if row.startswith("1  ")] == ["7"]


def test_the_page_says_where_the_seconds_before_an_attempt_went() -> None:
    lost = [{"cause": "Detection", "seconds": 4}, {"cause": "Imports", "seconds": 20}]
    attempt = JOB["status"]["attempts"][0] | {"number": 2, "recovery": lost}
    page = describe(JOB | {"status": JOB["status"] | {"attempts": [attempt]}})
    assert "lost before attempt 2: 24 s (Imports 20 s, Detection 4 s)" in page


def test_the_page_shows_what_the_devices_of_ended_attempts_were_held_for() -> None:
    rest = [{"use": "Start", "deviceSeconds": 100}, {"use": "End", "deviceSeconds": 20}]
    used = {"deviceSeconds": 480, "productiveDeviceSeconds": 360, "goodput": "0.75", "unproductive": rest}
    page = describe(JOB | {"status": JOB["status"] | {"usage": used}})
    assert "device time of ended attempts: goodput 75.0%, Start 20.8%, End 4.2%" in page
    earlier = describe(JOB | {"status": JOB["status"] | {"usage": used | {"deviceSeconds": 960}}})
    assert "goodput 37.5%, Start 10.4%, End 2.1%, unknown 50.0%" in earlier


def test_the_page_names_where_ended_attempts_are_written_down() -> None:
    attempt = JOB["status"]["attempts"][0] | {"endTime": "2026-01-01T00:09:00Z"}
    metadata = JOB["metadata"] | {"uid": "0a1b2c3d-0000"}
    page = describe({"metadata": metadata, "status": {**JOB["status"], "attempts": [attempt]}})
    assert page.endswith("records of ended attempts: configmap/sums-0a1b2-attempts")


@pytest.mark.parametrize(
    ("found", "line"),
    [
        ({"runtimeImage": "operator:1"}, "with the runtime of operator:1"),
        ({"verlVersion": "0.9.1"}, "with verl 0.9.1"),
        ({"runtimeImage": "operator:1", "verlVersion": "0.9.1"}, "with the runtime of operator:1 and verl 0.9.1"),
    ],
)
def test_the_page_names_the_runtime_and_the_verl_of_the_cluster(found: dict[str, str], line: str) -> None:
    status = JOB["status"] | {"rayCluster": JOB["status"]["rayCluster"] | found}
    assert f"http://10.0.0.1:8265\n{line}\n\n" in describe(JOB | {"status": status})


def test_a_job_that_nobody_looked_at_yet_is_unknown() -> None:
    assert describe({"metadata": {"name": "new"}}) == "default/new  Unknown"


def test_the_bar_is_bounded() -> None:
    assert progress_bar({}, 4) == "[....] 0/?"
    assert progress_bar({"step": 3, "totalSteps": 4}, 4) == "[###.] 3/4"
    assert progress_bar({"step": 9, "totalSteps": 4}, 4) == "[####] 9"


def test_status_asks_kubectl(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kubectl / "answer").write_text(json.dumps(JOB))
    assert main(["status", "sums", "-n", "team-a", "--context", "c"]) == 0
    assert capsys.readouterr().out == PAGE + "\n"
    words = (kubectl / "words").read_text().strip()
    assert words == "get rljobs.rljob.dev sums --output json --namespace team-a --context c"


def test_a_failed_job_is_exit_code_1(kubectl: Path) -> None:
    (kubectl / "answer").write_text(json.dumps({"metadata": {"name": "x"}, "status": {"state": "Failed"}}))
    assert main(["status", "x"]) == 1


def test_what_kubectl_complains_of_is_passed_on(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kubectl / "error").write_text('rljobs.rljob.dev "x" not found')
    assert main(["status", "x"]) == 2
    assert 'rljobs.rljob.dev "x" not found' in capsys.readouterr().err


def test_without_kubectl_the_error_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert main(["status", "x"]) == 2
    assert "kubectl is not on the PATH" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_an_error(
    kubectl: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def hang(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("kubectl", 20)

    assert kubectl.exists()
    monkeypatch.setattr(bounded_process, "run", hang)
    assert main(["status", "x"]) == 6
    assert "check that the cluster is reachable" in capsys.readouterr().err
