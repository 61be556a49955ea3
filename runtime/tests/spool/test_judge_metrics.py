"""Requests to a judge, counted since the step before."""

from __future__ import annotations

from rljob_runtime.spool.judge_metrics import JudgeCounts


def test_a_step_has_the_requests_since_the_step_before() -> None:
    before, now = JudgeCounts(10, 1, 4.0), JudgeCounts(16, 3, 20.0)
    assert now.since(before) == {
        "rljob/judge_requests/succeeded": 6.0,
        "rljob/judge_requests/failed": 2.0,
        "rljob/judge_request_seconds": 2.0,
    }
    assert now.since(now) == {"rljob/judge_requests/succeeded": 0.0, "rljob/judge_requests/failed": 0.0}
