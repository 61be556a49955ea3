"""What a step of an asynchronous mode says about the prompts in flight."""

from __future__ import annotations

from rljob_runtime.checkpoints.prompt_ledger import Dropped, PromptLedger
from rljob_runtime.spool import prompt_metrics


def response(first: int, last: int, **more: object) -> dict[str, object]:
    return {"min_global_steps": first, "max_global_steps": last, **more}


def test_responses_are_counted_by_the_age_of_the_weights_that_began_them() -> None:
    tags: list[dict[str, object]] = [
        response(4, 4),
        response(4, 4),
        response(2, 4),
        response(0, 0, is_padding=True),
        {"status": "success"},
    ]
    assert prompt_metrics.staleness(tags, step=5) == {
        "rljob/staleness/0": 2,
        "rljob/staleness/2": 1,
        "rljob/mixed_versions_ratio": 1 / 3,
    }


def test_without_versions_there_is_no_staleness() -> None:
    assert prompt_metrics.staleness([{"min_global_steps": None}], step=5) == {}


def test_the_queue_is_reported_by_state_and_age() -> None:
    prompts = [{"status": "running", "global_steps": 3}, {"status": "finished", "global_steps": 5}]
    assert prompt_metrics.queue(prompts, step=5) == {
        "rljob/queue/pending": 0,
        "rljob/queue/running": 1,
        "rljob/queue/finished": 1,
        "rljob/queue/failure": 0,
        "rljob/oldest_prompt_steps": 2,
    }
    assert "rljob/oldest_prompt_steps" not in prompt_metrics.queue([], step=5)


def test_every_fate_of_a_prompt_is_a_figure() -> None:
    ledger = PromptLedger()
    for row, uid in enumerate("abc"):
        ledger.fetch(uid, 0, row)
    ledger.retry("a")
    ledger.train("a")
    ledger.drop("b", Dropped.STALE)
    assert prompt_metrics.prompts(ledger, ledger.unaccounted({"c"}, drawn=3)) == {
        "rljob/prompts/fetched": 3,
        "rljob/prompts/trained": 1,
        "rljob/prompts/retried": 1,
        "rljob/prompts/unaccounted": 0,
        "rljob/prompts_dropped/stale": 1,
        "rljob/prompts_dropped/filtered": 0,
        "rljob/prompts_dropped/failed": 0,
    }
