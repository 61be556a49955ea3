"""Totals over all attempts on a head, across restarts of driver and exporter and incomplete lines."""

from __future__ import annotations

import math

import pytest

from rljob_runtime.contract import SpoolFile
from rljob_runtime.exporter.totals import Totals
from rljob_runtime.spool.spool import Spool, StepRecord


def step(number: int, seconds: float = 10.0, **more: float) -> StepRecord:
    return StepRecord(number, float(number), {"timing_s/step": seconds, "timing_s/gen": seconds / 2, **more})


def test_a_second_attempt_adds_to_the_first_and_repeats_its_steps(spool: Spool) -> None:
    totals = Totals(spool)
    for number in (1, 2, 3):
        spool.append_step(1, step(number, **{"rljob/tokens/response": 100.0}))
    totals.catch_up()
    assert (totals.steps, totals.tokens["response"]) == (3, 300.0)
    for number in (3, 4):
        spool.append_step(2, step(number, 20.0, **{"rljob/tokens/response": 100.0}))
    totals.catch_up()
    totals.catch_up()
    assert (totals.steps, totals.tokens["response"], len(totals.attempts)) == (5, 500.0, 2)
    assert totals.stage_seconds["step"] == 3 * 10 + 2 * 20
    assert totals.stage_seconds["gen"] == 35
    new_totals = Totals(spool)
    new_totals.catch_up()
    assert (new_totals.steps, new_totals.tokens, new_totals.stage_seconds) == (5, totals.tokens, totals.stage_seconds)


def test_a_line_counts_once_it_is_whole(spool: Spool) -> None:
    totals = Totals(spool)
    spool.append_step(1, step(1))
    file = spool.attempt_folder(1) / SpoolFile.STEPS
    whole = file.read_bytes()
    file.write_bytes(whole + whole[:20])
    totals.catch_up()
    assert totals.steps == 1
    file.write_bytes(whole + whole)
    totals.catch_up()
    assert totals.steps == 2


def test_idle_time_is_that_of_every_replica(spool: Spool) -> None:
    rollout = {
        "rljob/rollout_seconds": 10.0,
        "rljob/first_dp_idle_ratio": 0.4,
        "rljob/replica/0/finish_seconds": 6.0,
        "rljob/replica/1/finish_seconds": 10.0,
        "rljob/replica/0/requests": 32.0,
    }
    totals = Totals(spool)
    for number in (1, 2):
        spool.append_step(1, step(number, **rollout))
    totals.catch_up()
    assert totals.replica_seconds == {"busy": 32.0, "idle": 8.0}
    assert totals.first_dp_idle_seconds == pytest.approx(8.0)
    assert totals.stage_seconds["rollout"] == 20.0


def test_what_is_no_number_poisons_no_sum(spool: Spool) -> None:
    totals = Totals(spool)
    spool.append_step(1, step(1, **{"rljob/tokens/response": math.nan, "timing_s/ref": math.inf}))
    spool.append_step(1, step(2, **{"rljob/tokens/response": 5.0}))
    totals.catch_up()
    assert (totals.tokens["response"], "ref" in totals.stage_seconds) == (5.0, False)


def test_the_last_validation_stays_while_other_steps_have_none(spool: Spool) -> None:
    totals = Totals(spool)
    score = {"rljob/validation/score/mean": 0.25}
    spool.append_step(1, StepRecord(0, 0.0, score))
    spool.append_step(1, step(1, **{"val-core/math/acc/mean@4": 0.5, "critic/score/mean": 0.1}))
    spool.append_step(1, step(2))
    totals.catch_up()
    assert totals.steps == 2
    assert totals.validation == StepRecord(1, 1.0, {"val-core/math/acc/mean@4": 0.5})


def test_the_last_validation_is_not_that_of_the_last_name(spool: Spool) -> None:
    for attempt in (2, 10):
        spool.append_step(attempt, step(attempt, **{"rljob/validation/score/mean": float(attempt)}))
    totals = Totals(spool)
    totals.catch_up()
    assert totals.validation == StepRecord(10, 10.0, {"rljob/validation/score/mean": 10.0})
