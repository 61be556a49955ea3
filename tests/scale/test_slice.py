"""A few jobs of `make scale` with the same real programs. Checks counts only; `make scale` measures."""

from __future__ import annotations

import pytest
import pytest_asyncio

from tests.scale.plane import OPERATOR
from tests.scale.report import writes, writes_until_ready
from tests.scale.run import Outcome, run_rljobs
from tests.scale.settings import Settings

pytestmark = [pytest.mark.integration, pytest.mark.asyncio(loop_scope="module")]

SETTINGS = Settings(jobs=30, workers=2, step_seconds=5, steady_seconds=5, restart_seconds=25, patience_seconds=900)
WRITES_UNTIL_READY = 5.5
"""5 (operator/tests/property/test_writes.py), and the writes before our watch shows that a job is ready. KubeRay needs
5 and an event for a RayJob in InteractiveMode."""
WRITES_UNTIL_ALL_TRAIN = 10
"""Including the submission, its event, the first step, and one per half minute of training while others start; without
these, 8."""

SERIES = 800
"""Series of a process with one place and its outcomes; docs/reference/metrics.md has the formula."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def outcome() -> Outcome:
    return await run_rljobs(SETTINGS, print)


async def test_every_job_has_one_cluster_and_one_submission(outcome: Outcome) -> None:
    assert outcome.clusters == SETTINGS.jobs
    assert outcome.submissions == [1] * SETTINGS.jobs
    assert len(outcome.seconds_to_training) == SETTINGS.jobs


async def test_the_operator_asks_heads_for_nothing_that_they_refuse(outcome: Outcome) -> None:
    assert outcome.refused == 0


async def test_a_job_costs_a_bounded_number_of_writes(outcome: Outcome) -> None:
    until_ready, until_all_train = writes_until_ready(outcome), writes(outcome)
    assert sum(until_ready.values()) <= WRITES_UNTIL_READY, until_ready
    assert sum(until_all_train.values()) <= WRITES_UNTIL_ALL_TRAIN, until_all_train


async def test_a_restart_under_running_jobs_writes_nothing(outcome: Outcome) -> None:
    assert outcome.restart is not None
    assert outcome.restart.exit_code == 0
    assert outcome.restart.writes == {}


async def test_nothing_but_progress_is_written_while_jobs_run(outcome: Outcome) -> None:
    assert outcome.steady is not None
    seen = outcome.steady.traffic.of(OPERATOR).of_job_controller().writes()
    assert set(seen) <= {"patch rljobs/status"}


async def test_the_metrics_have_no_more_series_than_the_formula_says(outcome: Outcome) -> None:
    assert 100 < outcome.series < SERIES
