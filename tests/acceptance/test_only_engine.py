"""The only engine of a run is killed while it generates: the attempt ends with its last lines, and the next resumes."""

from __future__ import annotations

from datetime import datetime

import pytest

from tests.e2e import quickstart, recorded_run
from tests.kube import Kube

pytestmark = [pytest.mark.e2e, pytest.mark.training]

NAME = "only-engine"
STEPS, SAVE_EVERY = 24, 2


def test_the_attempt_ends_with_the_last_lines_and_the_next_one_resumes(alone: Kube) -> None:
    job = quickstart.variant(
        NAME,
        workerGroups__0__devicesPerNode=1,
        trainer__steps=STEPS,
        checkpoint={"path": f"{quickstart.MOUNT}/checkpoints/{NAME}", "everySteps": SAVE_EVERY, "keep": 2},
        restart={"maxInfrastructureRestarts": 2, "backoffSeconds": 1},
    )
    *_, record = recorded_run.run_with_faults(alone, job, ((SAVE_EVERY + 1, recorded_run.kill_engine),), 1800)
    lost, last = record.status["attempts"]
    assert (lost["cause"], lost["reason"]) == ("Infrastructure", "ProcessLost")
    assert "PromptServer" in lost["message"]
    assert "its last lines: " in lost["message"]
    assert last["outcome"] == "Succeeded"
    assert last["resumedFromStep"] >= SAVE_EVERY
    assert datetime.fromisoformat(lost["endTime"]) < datetime.fromisoformat(last["submittedTime"])
    assert [line["step"] for line in record.lines] == list(range(1, STEPS + 1))
