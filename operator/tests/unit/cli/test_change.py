"""What `suspend`, `resume`, `stop` and `restart` say about jobs with and without checkpoints."""

from __future__ import annotations

from typing import Any

import pytest
from builders import Json

from rljob.cli import kubectl
from rljob.cli.main import main

SAVING = {"checkpoint": {"path": "/data/ckpt", "everySteps": 5}}


@pytest.mark.parametrize(
    ("command", "spec", "says"),
    [
        ("suspend", SAVING, "saves a checkpoint and releases its NPUs"),
        ("suspend", {}, "without spec.checkpoint nothing is saved"),
        ("resume", SAVING, "continues from its last checkpoint"),
        ("resume", {"recipeRef": {"name": "r"}}, "continues from its last checkpoint"),
        ("resume", {}, "begins at step 0"),
        ("stop", SAVING, "saves a checkpoint and ends"),
        ("stop", {}, "ends without a checkpoint"),
        ("restart", {}, "begins at step 0 in a new cluster"),
    ],
)
def test_a_job_without_checkpoints_is_promised_none(
    command: str, spec: Json, says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata: Json = {"namespace": "team", "name": "sums", "annotations": {"rljob.dev/restart": "now"}}
    whole = spec | {"suspend": True, "stop": {"requested": True}}
    job: dict[str, Any] = {"metadata": metadata, "spec": whole, "status": {"state": "Training"}}
    monkeypatch.setattr(kubectl, "get_job", lambda *_: job)
    monkeypatch.setattr(kubectl, "patch_job", lambda *_: job)
    assert main([command, "sums"]) == 0
    assert says in capsys.readouterr().out


def test_a_restart_waits_for_the_run_in_its_new_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    metadata: Json = {"namespace": "team", "name": "sums", "annotations": {"rljob.dev/restart": "now"}}
    job: dict[str, Any] = {"metadata": metadata, "spec": SAVING, "status": {"state": "Training"}}
    asked: list[str] = []
    monkeypatch.setattr(kubectl, "get_job", lambda *_: job)
    monkeypatch.setattr(kubectl, "patch_job", lambda *_: job)
    monkeypatch.setattr(kubectl, "run", lambda words, *_, **__: asked.append(words[3]))
    assert main(["restart", "sums", "--wait"]) == 0
    watched = [words.partition("=")[2].partition("}")[0] for words in asked]
    assert watched == ["{.status.restartRequest", "{.status.state"]


def test_a_suspended_job_is_resumed_and_not_restarted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job: dict[str, Any] = {"metadata": {"namespace": "team", "name": "sums"}, "status": {"state": "Suspended"}}
    monkeypatch.setattr(kubectl, "get_job", lambda *_: job)
    assert main(["restart", "sums"]) == 2
    assert "`rljob resume sums` begins a new cluster with the edited fields" in capsys.readouterr().err
