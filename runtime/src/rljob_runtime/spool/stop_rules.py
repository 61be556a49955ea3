"""Stop rules: decide whether a run ends by its own metrics. Pure; the trainer passes in each step's metrics.

A step in which a rule's metric was not recorded (validation metrics exist only in steps that validate) neither counts
nor resets the count. Each attempt starts counting again, because the step records are lost with the head pod; at worst
a rule matches `for_steps` - 1 steps later.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rljob_runtime.contract import ExitCode, Outcome, RuleCondition, StopRule
from rljob_runtime.spool import step_metrics

VALIDATION_PREFIXES = ("val-", step_metrics.VALIDATION_SCORE)
"""verl names validation metrics val-core/... and val-aux/... (trainer_base.py, _val_metrics_update, 0.9.1)."""
REASON = "StopRuleMatched"
SHOWN = 3
"""Maximum number of names that a warning suggests."""


@dataclass(frozen=True)
class Match:
    """A rule that matched."""

    rule: StopRule
    value: float
    step: int

    def describe(self) -> str:
        """Return the rule, the metric's value and the step as text."""
        rule = self.rule
        if rule.condition is RuleCondition.IS_NAN:
            found = f"{rule.metric} is NaN"
        else:
            found = f"{rule.metric} {self.value:.6g} is {rule.condition.value.lower()} {rule.threshold:.6g}"
        duration = f", for {rule.for_steps} consecutive steps" if rule.for_steps > 1 else ""
        return f"stop rule {rule.name}: {found} at step {self.step}{duration}"

    def outcome(self, saved_step: int | None) -> Outcome:
        """Return the outcome of the attempt: a success, or a failure that is not retried."""
        code = ExitCode.DONE if self.rule.succeeds else ExitCode.RULE_MATCHED
        return Outcome(
            int(code), REASON, f"{self.describe()}; {self._kept(saved_step)}", rule=self.rule.name, last_step=self.step
        )

    def breaks_weights(self) -> bool:
        """Return whether the rule means that this step's weights are worthless."""
        return self.rule.condition is RuleCondition.IS_NAN

    def _kept(self, saved_step: int | None) -> str:
        if saved_step is None:
            return "nothing is saved"
        if self.breaks_weights() and saved_step < self.step:
            return f"the weights of this step are not saved; the last saved step is {saved_step}"
        return f"step {saved_step} is saved"


def holds(rule: StopRule, value: float) -> bool:
    """Return whether a value meets the rule's condition. NaN is neither above nor below a threshold."""
    if rule.condition is RuleCondition.IS_NAN:
        return math.isnan(value)
    if rule.threshold is None:
        raise ValueError(f"stop rule {rule.name}: {rule.condition.value} without a threshold")
    return value > rule.threshold if rule.condition is RuleCondition.ABOVE else value < rule.threshold


class StopRules:
    """The rules of one attempt, and for how many steps each has held."""

    def __init__(self, rules: Iterable[StopRule]) -> None:
        self._row = dict.fromkeys(rules, 0)
        self._unseen = set(self._row)
        self._warned: set[StopRule] = set()

    def nan_of(self, metrics: Mapping[str, float]) -> str | None:
        """Return a metric that is NaN although a rule forbids it, even if the rule has not matched yet."""
        values = ((rule, metrics.get(rule.metric)) for rule in self._row if rule.condition is RuleCondition.IS_NAN)
        return next((rule.metric for rule, value in values if value is not None and holds(rule, value)), None)

    def observe(self, step: int, metrics: Mapping[str, float]) -> Match | None:
        """Record a step's metrics; return the first rule, in the manifest's order, that has held for long enough."""
        first: Match | None = None
        for rule in self._row:
            value = metrics.get(rule.metric)
            if value is None:
                continue
            self._unseen.discard(rule)
            self._row[rule] = self._row[rule] + 1 if holds(rule, value) else 0
            if first is None and self._row[rule] >= rule.for_steps:
                first = Match(rule, value, step)
        return first

    def warnings(self, metrics: Mapping[str, float]) -> list[str]:
        """Return a warning, once per rule, for rules whose metric should be in `metrics` and is not."""
        validated = any(name.startswith(VALIDATION_PREFIXES) for name in metrics)
        due = [
            rule
            for rule in self._row
            if rule in self._unseen - self._warned and (validated or not rule.metric.startswith(VALIDATION_PREFIXES))
        ]
        self._warned.update(due)
        return [_unknown(rule, metrics) for rule in due]


def _unknown(rule: StopRule, metrics: Iterable[str]) -> str:
    near = difflib.get_close_matches(rule.metric, list(metrics), n=SHOWN, cutoff=0.5)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    return f"stop rule {rule.name} cannot match: no metric {rule.metric} was recorded{hint}"
