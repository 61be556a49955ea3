"""Steps are parsed from lines that may contain anything."""

from __future__ import annotations

import math
import re
import time

import pytest

from rljob_runtime.command import progress
from rljob_runtime.command.progress import StepReport, parse_json, parse_pattern, parse_verl_console
from rljob_runtime.contract import CommandMetric, CommandProgress, ExitCode, ProgressSource
from rljob_runtime.outcomes import RefusedError

LINE = "step:12 - critic/score/mean:0.5 - timing_s/step:1e-05"
REPORT = StepReport(12, {"critic/score/mean": 0.5, "timing_s/step": 1e-05})


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "(TaskRunner pid=12) ",
        "\x1b[36m(TaskRunner pid=12)\x1b[0m ",
        "(TaskRunner pid=12, ip=10.0.0.7) ",
        "\x1b[36m(pid=12)\x1b[0m ",
    ],
)
def test_a_line_of_verl_is_a_step_also_behind_the_prefix_of_ray(prefix: str) -> None:
    assert parse_verl_console(f"{prefix}{LINE}") == REPORT
    assert parse_verl_console(f"{prefix}step:0") == StepReport(0)


@pytest.mark.parametrize(
    "line", ["", "global step:12 - a:1", "(step:12) - a:1", "step:12 of 40", "step: 12", "Training: 12/40", "step:1.5"]
)
def test_another_line_is_no_step_of_verl(line: str) -> None:
    assert parse_verl_console(line) is None


def test_values_of_numpy_are_numbers_and_other_values_are_left_out() -> None:
    line = "step:1 - a:np.float64(0.25) - b:np.int64(3) - c:True - d:nan - e:inf - f:1e999 - :7 - g: - h:x - i:j:2"
    report = parse_verl_console(line)
    assert report is not None
    assert math.isnan(report.metrics["d"])
    rest = {key: value for key, value in report.metrics.items() if key != "d"}
    assert rest == {"a": 0.25, "b": 3.0, "e": math.inf, "f": math.inf, "i:j": 2.0}


def test_a_line_that_is_cut_loses_the_metric_at_the_cut() -> None:
    start = "step:1 - a:1 - "
    line = start + "x" * (progress.LINE_CHARACTERS - len(start) - 4) + ":1234567"
    assert line[: progress.LINE_CHARACTERS].endswith(":123")
    assert parse_verl_console(line) == StepReport(1, {"a": 1.0})


def test_the_number_of_metrics_and_the_lengths_of_names_and_numbers_are_bounded() -> None:
    many = " - ".join(f"m{number}:1" for number in range(2000))
    report = parse_verl_console(f"step:1 - {many}")
    assert report is not None
    assert len(report.metrics) == progress.METRICS_MAX
    assert parse_verl_console(f"step:1 - {'n' * 201}:1 - a:{'1' * 65} - b:2") == StepReport(1, {"b": 2.0})


@pytest.mark.parametrize("step", ["-1", "1000000001", "99999999999999999999", "nan", "inf", "x", "1" * 5000])
def test_an_implausible_step_is_none(step: str) -> None:
    assert parse_verl_console(f"step:{step} - a:1") is None
    assert parse_json(f'{{"step": "{step}", "a": 1}}', "step") is None
    assert parse_pattern(f"<{step}>", re.compile(r"<(?P<step>.*)>")) is None


@pytest.mark.parametrize(
    "line",
    [
        *("", "{", '{"step": 1', "[1]", "7", "null", '{"a": 1}', '{"step": null}', '{"step": true}', '{"step": [1]}'),
        *('{"step": 1.5}', '{"step": NaN}', '{"step": Infinity}', '{"step": -1}', '{"step": 1e400}'),
        *('{"step": ' + "1" * 400 + "}", '{"step": ' + "1" * 5000 + "}", "[" * 20_000, '{"a":' * 10_000),
    ],
)
def test_a_line_of_json_without_a_step_is_none(line: str) -> None:
    assert parse_json(line, "step") is None


def test_an_object_is_a_step_with_its_numbers() -> None:
    line = (
        '{"iter": 3.0, "reward": NaN, "note": "x", "text": "2.5", "big": 1%s, "train": {"loss": 1, "deep": {"x": 1}}}'
    )
    report = parse_json(line % ("0" * 400), "iter")
    assert report is not None
    assert (report.step, sorted(report.metrics)) == (3, ["reward", "text", "train/loss"])
    assert math.isnan(report.metrics["reward"])
    assert report.metrics["train/loss"] == 1.0


def test_the_number_of_a_step_may_be_in_a_nested_object() -> None:
    assert parse_json('{"trainer": {"step": 4}, "loss": 2}', "trainer/step") == StepReport(4, {"loss": 2.0})


def test_names_that_utf8_cannot_encode_are_escaped() -> None:
    report = parse_json(r'{"step": 1, "a\ud800": 1}', "step")
    assert report == StepReport(1, {"a\\ud800": 1.0})


def test_a_pattern_gives_the_step_and_a_metric_for_each_named_group() -> None:
    pattern = progress.compile_pattern(r"iter (?P<step>\d+)(?: loss=(?P<loss>\S+))?( lr=(?P<lr>\S+))?")
    assert parse_pattern("\x1b[32mINFO\x1b[0m iter 7 loss=0.5", pattern) == StepReport(7, {"loss": 0.5})
    assert parse_pattern("iter 8 loss=high lr=1", pattern) == StepReport(8, {"lr": 1.0})
    assert parse_pattern("epoch 7", pattern) is None
    assert parse_pattern("x" * progress.PATTERN_CHARACTERS + "iter 7", pattern) is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"pattern": "("}, r"launcher.command.progress.pattern: '\(': "),
        ({"pattern": r"step (\d+)"}, r"has no group \(\?P<step>...\)"),
        ({"pattern": None}, "has no group"),
    ],
)
def test_a_source_that_cannot_be_read_is_refused(changes: dict[str, str], told: str) -> None:
    with pytest.raises(RefusedError, match=told) as refused:
        progress.parser_of(CommandProgress(**{"source": ProgressSource.PATTERN, **changes}))  # type: ignore[arg-type]
    assert (refused.value.code, refused.value.reason) == (ExitCode.BAD_CONFIG, "CommandInvalid")


@pytest.mark.parametrize(
    ("given", "line"),
    [
        (CommandProgress(ProgressSource.VERL_CONSOLE), "step:2 - a:1"),
        (CommandProgress(ProgressSource.JSON_LINES, path="/x", step_key="n"), '{"n": 2, "a": 1}'),
        (CommandProgress(ProgressSource.PATTERN, pattern=r"(?P<step>\d+) (?P<a>\d+)"), "at 2 1"),
    ],
)
def test_each_source_has_its_parser(given: CommandProgress, line: str) -> None:
    assert progress.parser_of(given)(line) == StepReport(2, {"a": 1.0})


def test_a_step_counts_once_and_only_forwards() -> None:
    assert [progress.is_next(StepReport(step), 5) for step in (0, 4, 5, 6, 9)] == [False, False, False, True, True]


def test_figures_are_found_under_the_keys_of_the_command() -> None:
    names = {CommandMetric.REWARD: "score", CommandMetric.TOKENS: "ntok", CommandMetric.STEP_SECONDS: "absent"}
    found = progress.figures({"score": 0.5, "ntok": 800.0, "loss": 1.0}, names, seconds=4.0, cards=2.0)
    assert found == {
        "score": 0.5,
        "ntok": 800.0,
        "loss": 1.0,
        "critic/score/mean": 0.5,
        "perf/total_num_tokens": 800.0,
        "timing_s/step": 4.0,
        progress.KEYS[CommandMetric.TOKENS_PER_SECOND_PER_CARD]: 100.0,
    }


@pytest.mark.parametrize(("tokens", "seconds"), [(800.0, 0.0), (math.nan, 4.0), (math.inf, 4.0), (800.0, -1.0)])
def test_throughput_is_computed_from_plausible_numbers_only(tokens: float, seconds: float) -> None:
    found = progress.figures({"perf/total_num_tokens": tokens, "timing_s/step": seconds}, None, 1.0, cards=1.0)
    assert sorted(found) == ["perf/total_num_tokens", "timing_s/step"]


def test_the_command_may_report_its_throughput_itself() -> None:
    key = progress.KEYS[CommandMetric.TOKENS_PER_SECOND_PER_CARD]
    names = {CommandMetric.TOKENS_PER_SECOND_PER_CARD: "tps"}
    assert progress.figures({"tps": 5.0}, names, None, cards=1.0) == {"tps": 5.0, key: 5.0}


@pytest.mark.parametrize(
    "line", ["(" * 100_000, "\x1b[" * 50_000, "step:1 - " * 20_000, "np.a(" * 20_000, " " * 500_000]
)
def test_hostile_lines_take_no_time(line: str) -> None:
    before = time.monotonic()
    parse_verl_console(line)
    parse_json(line, "step")
    assert time.monotonic() - before < 5
