"""Records on the log volume outlive the pods; a broken volume never stops a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rljob_runtime.mirror import Mirror
from rljob_runtime.spool import StepRecord
from runtime.tests.conftest import MakeJob

RECORD = StepRecord(step=1, time=2.0, metrics={"reward": 0.5})


def test_step_records_are_copied(make_job: MakeJob, tmp_path: Path) -> None:
    Mirror(make_job(log_path=str(tmp_path)), 3).append_step(RECORD)
    line = (tmp_path / "sums-uid01-1" / "attempt-3" / "steps.jsonl").read_text()
    assert json.loads(line) == {"step": 1, "time": 2.0, "metrics": {"reward": 0.5}}


def test_the_drivers_log_is_copied_as_it_grows(make_job: MakeJob, tmp_path: Path) -> None:
    log, copy = tmp_path / "log", tmp_path / "volume" / "sums-uid01-1" / "attempt-1" / "driver.log"
    mirror = Mirror(make_job(log_path=str(tmp_path / "volume")), 1)
    log.write_text("one\n")
    mirror.copy(log)
    log.write_text("one\ntwo\n")
    mirror.copy(log)
    mirror.copy(log)
    assert copy.read_text() == "one\ntwo\n"


def test_a_broken_volume_is_told_once(make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    mirror = Mirror(make_job(log_path=str(tmp_path / "file")), 1)
    mirror.append_step(RECORD)
    mirror.append_step(RECORD)
    mirror.copy(tmp_path / "file")
    assert capsys.readouterr().err.count("records are not copied") == 1


def test_without_a_log_path_nothing_is_written(make_job: MakeJob, tmp_path: Path) -> None:
    mirror = Mirror(make_job(), 1)
    mirror.append_step(RECORD)
    mirror.copy(tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []
