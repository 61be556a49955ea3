"""What the job uses is read before anything is decided."""

from __future__ import annotations

from builders import (
    decide,
    job,
    small_spec,
    status_begun,
)

from rljob.core.observed import UNSEEN, Observed
from rljob.core.plan import Plan

WRONG = small_spec({"trainer": {"globalBatchSize": 33, "samplesPerPrompt": 7}})


def test_nothing_is_said_of_a_job_before_it_is_known_whether_it_began() -> None:
    assert decide(Observed(job(WRONG), snapshot=UNSEEN)) == Plan(requeue_after_seconds=5.0)


def test_an_unseen_snapshot_is_not_a_missing_one() -> None:
    assert decide(Observed(job(status=status_begun()))) == Plan(requeue_after_seconds=5.0)
