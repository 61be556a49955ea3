"""Parse the steps of a command from its lines. Pure.

The lines are foreign, so their length, the number of their metrics and the size of their numbers are bounded. What is
not a step gives None, never an exception. NaN and infinite metrics are kept, because stop rules look for them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rljob_runtime.contract import (
    CommandMetric,
    CommandProgress,
    ExitCode,
    ProgressSource,
    StepMetric,
    legible,
    quoted,
)
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool.step_metrics import VERL_TOKENS

LINE_CHARACTERS = 64 * 1024
"""A line is cut here before it is parsed. verl's console line has about 8,000 characters."""
PATTERN_CHARACTERS = 4096
"""The same for Pattern, as for restart rules (spool/log_rules.py): the time of a match grows with the length."""
METRICS_MAX = 512
NAME_CHARACTERS = 200
NUMBER_CHARACTERS = 64
STEP_MAX = 10**9
"""A larger number is no step. One such record would otherwise make every later step look like an earlier one."""
CONTROL_SEQUENCE = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
"""ECMA-48, 5.4: colours and movements of the cursor."""
VERL_LINE = re.compile(r"(?:\([^()]{0,200}pid=\d{1,10}(?:, ip=[^()\s]{1,64})?\) )?step:(-?\w{1,20})(?: - (.*))?")
"""concat_dict_to_str in verl/utils/logger/aggregate_logger.py (0.9.1), behind the prefix of a line that Ray forwards
from a worker: print_worker_logs in ray/_private/worker.py (2.60)."""
NUMPY_SCALAR = re.compile(r"np\.\w{1,20}\((.*)\)")
"""verl formats values with pprint, and numpy 2 represents its scalars as `np.float64(0.5)`."""
KEYS: Mapping[CommandMetric, str] = {
    CommandMetric.REWARD: StepMetric.REWARD.value,
    CommandMetric.STEP_SECONDS: StepMetric.STEP_SECONDS.value,
    CommandMetric.TOKENS: VERL_TOKENS,
    CommandMetric.TOKENS_PER_SECOND_PER_CARD: StepMetric.STEP_TPS_PER_CARD.value,
    CommandMetric.RESPONSE_TOKENS_MEAN: "response_length/mean",
    CommandMetric.FIRST_DP_IDLE_RATIO: StepMetric.FIRST_DP_IDLE.value,
    CommandMetric.CLUSTER_IDLE_RATIO: StepMetric.CLUSTER_IDLE.value,
}
"""The key of each figure in a step's record, from which status, metrics and boards take it."""


@dataclass(frozen=True)
class StepReport:
    """A step as the command reports it."""

    step: int
    metrics: Mapping[str, float] = field(default_factory=dict)


Parser = Callable[[str], StepReport | None]


def parser_of(progress: CommandProgress) -> Parser:
    """Return the parser of a source's lines. Raises RefusedError (exit 64) for a source that cannot be read."""
    if progress.source is ProgressSource.VERL_CONSOLE:
        return parse_verl_console
    if progress.source is ProgressSource.JSON_LINES:
        return lambda line: parse_json(line, progress.step_key)
    if progress.source is ProgressSource.PATTERN:
        pattern = compile_pattern(progress.pattern)
        return lambda line: parse_pattern(line, pattern)
    return lambda _: None  # TensorBoard: event files have no lines (tensorboard.py)


def compile_pattern(text: str | None) -> re.Pattern[str]:
    """Compile a pattern. Raises RefusedError (exit 64) if it is invalid or has no group `step`."""
    try:
        pattern = re.compile(text or "")
    except (re.error, OverflowError, RecursionError) as error:
        raise _refused("pattern", f"{quoted(text)}: {error}") from error
    if "step" not in pattern.groupindex:
        raise _refused("pattern", f"{quoted(text)} has no group (?P<step>...), which is the number of the step")
    return pattern


def parse_verl_console(line: str) -> StepReport | None:
    """Parse verl's console line."""
    match = VERL_LINE.fullmatch(_plain(line, LINE_CHARACTERS))
    if match is None:
        return None
    pairs = [part.rpartition(":") for part in (match[2] or "").split(" - ")]
    if len(line) > LINE_CHARACTERS:
        pairs.pop()  # the last number may have lost digits
    return _report(match[1], {key: value for key, _, value in pairs})


def parse_json(line: str, step_key: str) -> StepReport | None:
    """Parse a JSON object with the step's number in `step_key`. The keys of nested objects are joined by a slash."""
    try:
        raw = json.loads(line[:LINE_CHARACTERS])
    except (ValueError, RecursionError):
        return None
    if not isinstance(raw, dict):
        return None
    values: dict[str, object] = {}
    for key, value in raw.items():
        values |= {f"{key}/{name}": one for name, one in value.items()} if isinstance(value, dict) else {key: value}
    return _report(values.pop(step_key, None), values)


def parse_pattern(line: str, pattern: re.Pattern[str]) -> StepReport | None:
    """Parse a line that contains the pattern. Each named group other than `step` is a metric."""
    match = pattern.search(_plain(line, PATTERN_CHARACTERS))
    if match is None:
        return None
    values = match.groupdict()
    return _report(values.pop("step"), values)


def is_next(report: StepReport, last: int) -> bool:
    """Return whether a report is a step after `last`. A step counts once, and steps only grow.

    verl also logs the validation before the first step, under the number of the step from which the run starts.
    """
    return report.step > last


def figures(
    metrics: Mapping[str, float], names: Mapping[CommandMetric, str] | None, seconds: float | None, cards: float
) -> dict[str, float]:
    """Return the metrics with the launcher's figures under the keys of `KEYS`.

    `names` has the command's keys, and `seconds` is the time since the previous step's record, None for the first.
    """
    named = {KEYS[figure]: metrics[key] for figure, key in (names or {}).items() if key in metrics}
    found = dict(metrics) | named
    if seconds is not None:
        found.setdefault(KEYS[CommandMetric.STEP_SECONDS], seconds)
    tokens, duration = found.get(VERL_TOKENS, math.nan), found.get(KEYS[CommandMetric.STEP_SECONDS], math.nan)
    if duration > 0 and math.isfinite(rate := tokens / duration / cards):
        found[KEYS[CommandMetric.TOKENS_PER_SECOND_PER_CARD]] = rate
    return found


def _plain(line: str, limit: int) -> str:
    """Return the start of a line without control sequences."""
    return CONTROL_SEQUENCE.sub("", line[:limit]).strip()


def _report(step: object, values: Mapping[str, object]) -> StepReport | None:
    number = _number(step)
    # The comparison is false for NaN.
    if number is None or not 0 <= number <= STEP_MAX or number != int(number):
        return None
    metrics: dict[str, float] = {}
    for key, value in values.items():
        name = key.strip()
        if len(metrics) < METRICS_MAX and 0 < len(name) <= NAME_CHARACTERS and (one := _number(value)) is not None:
            metrics[legible(name)] = one
    return StepReport(int(number), metrics)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    if isinstance(value, str):
        value = value.strip()[: NUMBER_CHARACTERS + 1]
        if len(value) > NUMBER_CHARACTERS:
            return None
        scalar = NUMPY_SCALAR.fullmatch(value)
        value = value if scalar is None else scalar[1]
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None


def _refused(field: str, what: str) -> RefusedError:
    return RefusedError(ExitCode.BAD_CONFIG, "CommandInvalid", f"launcher.command.progress.{field}: {what}")
