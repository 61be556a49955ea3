"""Runs that end by their own metrics."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from rljob_runtime.contract import ExitCode, RuleCondition, StopRule
from rljob_runtime.spool.stop_rules import StopRules

REWARD = "critic/score/mean"


TARGET = StopRule("target", REWARD, RuleCondition.ABOVE, 0.9)
BELOW = StopRule("low", REWARD, RuleCondition.BELOW, 0.1)
IS_NAN = StopRule("nan", REWARD, RuleCondition.IS_NAN)


def matched_at(one: StopRule, values: list[float | None]) -> int | None:
    """Pass one value per step; return the step at which the rule matches."""
    rules = StopRules([one])
    for step, value in enumerate(values, start=1):
        if rules.observe(step, {} if value is None else {one.metric: value}) is not None:
            return step
    return None


def test_a_value_beyond_the_threshold_matches_and_the_threshold_itself_does_not() -> None:
    assert matched_at(TARGET, [0.5, 0.9, 0.91]) == 3
    assert matched_at(BELOW, [0.5, 0.1, 0.09]) == 3


def test_nan_is_neither_above_nor_below_but_is_nan() -> None:
    assert matched_at(TARGET, [math.nan]) is None
    assert matched_at(BELOW, [math.nan]) is None
    assert matched_at(IS_NAN, [0.0, math.inf, math.nan]) == 3


def test_infinity_is_above_everything() -> None:
    assert matched_at(TARGET, [math.inf]) == 1


def test_steps_must_be_in_a_row() -> None:
    assert matched_at(replace(TARGET, for_steps=3), [1, 1, 0, 1, 1, 1]) == 6


def test_a_step_without_the_metric_neither_counts_nor_breaks_the_row() -> None:
    assert matched_at(replace(TARGET, for_steps=2), [1, None, None, 1]) == 4


def test_the_first_rule_of_the_manifest_wins_and_all_are_counted() -> None:
    slow, quick = replace(TARGET, name="slow", for_steps=2), replace(TARGET, name="quick")
    rules = StopRules([slow, quick])
    first = rules.observe(1, {REWARD: 1.0})
    second = rules.observe(2, {REWARD: 1.0})
    assert first is not None
    assert first.rule == quick
    assert second is not None
    assert second.rule == slow


def test_the_outcome_names_rule_metric_value_and_threshold() -> None:
    match = StopRules([replace(TARGET, for_steps=1)]).observe(7, {REWARD: 0.953125})
    assert match is not None
    outcome = match.outcome(saved_step=7)
    assert (outcome.exit_code, outcome.reason, outcome.rule) == (ExitCode.RULE_MATCHED, "StopRuleMatched", "target")
    assert outcome.message == "stop rule target: critic/score/mean 0.953125 is above 0.9 at step 7; step 7 is saved"


def test_a_rule_that_means_success_ends_with_zero() -> None:
    match = StopRules([replace(TARGET, succeeds=True, for_steps=2)])
    match.observe(1, {REWARD: 1.0})
    found = match.observe(2, {REWARD: 1.0})
    assert found is not None
    outcome = found.outcome(saved_step=None)
    assert outcome.exit_code == ExitCode.DONE
    assert outcome.message.endswith("at step 2, for 2 consecutive steps; nothing is saved")


@pytest.mark.parametrize(
    ("rule", "saved_step", "kept"),
    [
        (IS_NAN, None, "nothing is saved"),
        (IS_NAN, 5, "the weights of this step are not saved; the last saved step is 5"),
        (IS_NAN, 7, "step 7 is saved"),  # by its period, before the metric existed
        (replace(TARGET, for_steps=1), 5, "step 5 is saved"),
    ],
)
def test_weights_that_a_rule_calls_broken_are_reported_as_not_saved(
    rule: StopRule, saved_step: int | None, kept: str
) -> None:
    match = StopRules([rule]).observe(7, {REWARD: math.nan if rule == IS_NAN else 1.0})
    assert match is not None
    assert match.breaks_weights() is (rule == IS_NAN)
    assert match.outcome(saved_step).message.endswith(f"at step 7; {kept}")


def test_a_nan_is_found_before_its_row_is_full() -> None:
    rules = StopRules([TARGET, replace(IS_NAN, metric="actor/grad_norm", for_steps=3)])
    assert rules.nan_of({REWARD: math.nan}) is None
    assert rules.nan_of({"actor/grad_norm": 1.0}) is None
    assert rules.nan_of({"actor/grad_norm": math.nan}) == "actor/grad_norm"


def test_nan_is_reported_without_a_threshold() -> None:
    match = StopRules([IS_NAN]).observe(1, {REWARD: math.nan})
    assert match is not None
    assert "critic/score/mean is NaN at step 1" in match.describe()


def test_an_unknown_metric_is_reported_once_with_names_that_are_near() -> None:
    rules = StopRules([replace(TARGET, metric="critic/score/men")])
    recorded = {REWARD: 1.0, "actor/entropy": 2.0}
    assert rules.observe(1, recorded) is None
    (warning,) = rules.warnings(recorded)
    assert "no metric critic/score/men was recorded; did you mean critic/score/mean?" in warning
    assert rules.warnings(recorded) == []


def test_a_validation_metric_is_missed_only_after_a_validation() -> None:
    rules = StopRules([replace(TARGET, metric="val-core/sums/acc/mean@2")])
    assert rules.warnings({REWARD: 1.0}) == []
    assert "did you mean val-core/sums/acc/mean@1?" in rules.warnings({"val-core/sums/acc/mean@1": 1.0})[0]


def test_a_known_metric_is_not_reported() -> None:
    rules = StopRules([TARGET])
    rules.observe(1, {REWARD: 0.0})
    assert rules.warnings({REWARD: 0.0}) == []


def test_a_threshold_is_needed_except_for_nan() -> None:
    with pytest.raises(ValueError, match="stop rule target: Above without a threshold"):
        StopRules([replace(TARGET, threshold=None)]).observe(1, {REWARD: 1.0})
