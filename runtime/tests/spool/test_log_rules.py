"""Restart rules on the log: which one matches, and that neither a pattern nor a log can delay the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_runtime.contract import ExitCode, LogRule, Outcome
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool import log_rules
from rljob_runtime.spool.log_rules import (
    Match,
    apply_rules,
    evaluate,
    first_match,
    lines_of,
    read_end,
    require_patterns,
)
from runtime.tests.conftest import MakeJob

HCCL = LogRule("hccl", "HCCL.*timeout")
MEMORY = LogRule("memory", "out of memory$")
SLOW = LogRule("slow", "(a|aa)+$")
FAILED = Outcome(1, "RunFailed", "RuntimeError: worker died", last_step=4)
SECONDS = 120.0


def test_a_rule_that_matches_decides_and_keeps_the_cause(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("step 4\n\x1b[36m(Worker pid=7)\x1b[0m HCCL notify wait timeout\nRuntimeError: worker died\n")
    outcome = apply_rules(FAILED, [MEMORY, HCCL], log, SECONDS)
    assert (outcome.exit_code, outcome.rule, outcome.unruled_exit_code) == (68, "hccl", 1)
    assert (outcome.reason, outcome.last_step) == ("RunFailed", 4)
    said = "restart rule hccl matches '(Worker pid=7) HCCL notify wait timeout': RuntimeError: worker died"
    assert outcome.message == said


def test_of_several_rules_the_first_in_the_manifest_counts() -> None:
    text = "HCCL timeout\nout of memory\n"
    assert first_match([MEMORY, HCCL], text, SECONDS) == Match("memory", "out of memory")
    assert first_match([HCCL, MEMORY], text, SECONDS) == Match("hccl", "HCCL timeout")


def test_without_a_match_the_outcome_stays(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("HCCL\ntimeout\n")  # a pattern applies to one line
    assert apply_rules(FAILED, [HCCL], log, SECONDS) is FAILED
    assert apply_rules(FAILED, [], log) is FAILED
    assert apply_rules(FAILED, [HCCL], None) is FAILED


@pytest.mark.parametrize(
    "outcome",
    [
        Outcome(0, "Completed", "trained 4 steps"),
        Outcome(66, "Stopped", "AfterStep at step 4"),
        Outcome(64, "PathMissing", "model.path"),
        Outcome(68, "StopRuleMatched", "stop rule nan", rule="nan"),
        Outcome(65, "Fenced", "attempt 2 owns it"),
    ],
)
def test_an_end_that_no_restart_is_for_is_not_matched_against_rules(tmp_path: Path, outcome: Outcome) -> None:
    log = tmp_path / "log"
    log.write_text("HCCL timeout\n")
    assert apply_rules(outcome, [HCCL], log, SECONDS) is outcome


@pytest.mark.parametrize("code", [ExitCode.FAILED, ExitCode.ENVIRONMENT, ExitCode.STALLED])
def test_every_failure_that_can_be_retried_is_matched_against_rules(tmp_path: Path, code: ExitCode) -> None:
    log = tmp_path / "log"
    log.write_text("HCCL timeout\n")
    outcome = apply_rules(Outcome(int(code), "Some", "cause"), [HCCL], log, SECONDS)
    assert (outcome.exit_code, outcome.unruled_exit_code) == (68, code)


def test_a_pattern_that_backtracks_is_abandoned_and_the_next_one_still_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = "a" * 64 + "!\nHCCL timeout\n"
    assert first_match([SLOW, HCCL], text, 0.3) == Match("hccl", "HCCL timeout")
    assert "restart rule slow exceeded 0.3 s and counts as no match" in capsys.readouterr().err


def test_output_of_the_evaluating_process_is_forwarded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log").write_text("a" * 64 + "!\n")
    monkeypatch.setattr(log_rules, "MATCHING_SHARE", 0.01)
    assert evaluate([SLOW], tmp_path / "log", SECONDS) is None
    assert "restart rule slow exceeded 1.2 s" in capfd.readouterr().err


def test_a_failed_evaluation_of_rules_is_logged_and_keeps_the_outcome(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert apply_rules(FAILED, [HCCL], tmp_path / "absent") is FAILED
    assert "the restart rules were not evaluated" in capsys.readouterr().err


def test_only_the_end_of_a_long_log_is_read_from_a_whole_line_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    log.write_text("first\nsecond\nthird\n")
    assert read_end(log) == "first\nsecond\nthird\n"
    monkeypatch.setattr(log_rules, "LOG_BYTES", 9)
    assert read_end(log) == "third\n"


def test_lines_are_bounded_and_end_where_a_progress_bar_goes_back() -> None:
    assert list(lines_of("10%\r20%\r\n\nend")) == ["10%", "20%", "end"]
    assert [len(line) for line in lines_of("x" * 10_000)] == [4096]


def test_a_pattern_that_python_does_not_know_is_refused(make_job: MakeJob) -> None:
    require_patterns(make_job(log_rules=(HCCL,)))
    with pytest.raises(RefusedError, match=r"restart.rules bad: onLogPattern '\(': missing \)") as refused:
        require_patterns(make_job(log_rules=(HCCL, LogRule("bad", "("))))
    assert (refused.value.code, refused.value.reason) == (ExitCode.BAD_CONFIG, "RulePatternInvalid")
