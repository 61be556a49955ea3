"""Restart rules with `onLogPattern`: find the rule that matches the log of a failed driver.

The rules are evaluated once, when an attempt fails, so a matching line in a healthy run has no effect. A separate
process does it, because a backtracking pattern would block the launcher. Everything is limited: the part of the log
that is read, the length of a line, the time of each rule and of all rules. Run as a module, this program reads the
rules from standard input and prints the match, both as JSON.
"""

from __future__ import annotations

import dataclasses
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rljob_runtime.contract import ExitCode, JobConfig, LogRule, Outcome
from rljob_runtime.outcomes import FENCED, RefusedError, bounded

LOG_BYTES = 16 << 20
"""Size of the end of the log that is read: the cause of a failure is usually near the end."""
LINE_CHARACTERS = 4096
SECONDS = 10.0
"""Time for all rules, including the start of the process. The limit of one rule counts CPU time."""
MATCHING_SHARE = 0.7
SHOWN_CHARACTERS = 200
RETRYABLE = (ExitCode.FAILED, ExitCode.ENVIRONMENT, ExitCode.STALLED)
"""Ends that another attempt may resolve. The others are successes or never retried."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Ray colours the name of the process before each line that it forwards to the driver."""


@dataclass(frozen=True)
class Match:
    """A rule and the line that it matched."""

    rule: str
    line: str


class SlowPatternError(Exception):
    """Matching a pattern exceeded its time limit."""


def require_patterns(job: JobConfig) -> None:
    """Refuse patterns that Python cannot compile. The operator has already checked them against its own table."""
    for rule in job.log_rules:
        try:
            re.compile(rule.pattern)
        except re.error as error:
            raise RefusedError(
                ExitCode.BAD_CONFIG,
                "RulePatternInvalid",
                f"restart.rules {rule.name}: onLogPattern {rule.pattern!r}: {error}",
            ) from error


def apply_rules(outcome: Outcome, rules: Sequence[LogRule], log: Path | None, seconds: float = SECONDS) -> Outcome:
    """Return the outcome with the rule that matches, if any. Reason and cause stay the same."""
    if not rules or log is None or outcome.exit_code not in RETRYABLE or outcome.reason == FENCED:
        return outcome
    match = evaluate(rules, log, seconds)
    if match is None:
        return outcome
    message = bounded(f"restart rule {match.rule} matches {match.line[:SHOWN_CHARACTERS]!r}: {outcome.message}")
    return dataclasses.replace(
        outcome,
        exit_code=int(ExitCode.RULE_MATCHED),
        rule=match.rule,
        message=message,
        unruled_exit_code=outcome.exit_code,
    )


def evaluate(rules: Sequence[LogRule], log: Path, seconds: float) -> Match | None:
    """Return the first rule that matches a line, evaluated in a separate process."""
    each = MATCHING_SHARE * seconds / len(rules)
    question = json.dumps([str(log), each, [[rule.name, rule.pattern] for rule in rules]])
    words = [sys.executable, "-m", "rljob_runtime.spool.log_rules"]
    try:
        done = subprocess.run(words, input=question, capture_output=True, text=True, timeout=seconds, check=True)
        answer = json.loads(done.stdout)
        print(done.stderr, end="", file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print(f"rljob: the restart rules were not evaluated: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return None
    return Match(*answer) if answer else None


def first_match(rules: Sequence[LogRule], text: str, seconds_each: float) -> Match | None:
    """Return the first rule in the manifest's order that matches a line. A rule that is too slow is skipped."""
    lines = list(lines_of(text))
    before = signal.signal(signal.SIGVTALRM, _abort_match)
    try:
        for rule in rules:
            pattern = re.compile(rule.pattern)
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds_each)  # re checks for signals while it matches
            try:
                for line in lines:
                    if pattern.search(line):
                        return Match(rule.name, line)
            except SlowPatternError:
                message = f"rljob: restart rule {rule.name} exceeded {seconds_each:g} s and counts as no match"
                print(message, file=sys.stderr, flush=True)  # noqa: T201
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    return None


def lines_of(text: str) -> Iterator[str]:
    """Yield the lines of a log, truncated and without colours. Progress bars end lines with a carriage return."""
    for line in re.split(r"[\r\n]+", text):
        if line:
            yield COLOURS.sub("", line[:LINE_CHARACTERS])


def read_end(log: Path) -> str:
    """Read the end of a log, starting at a whole line."""
    with log.open("rb") as file:
        size = log.stat().st_size
        file.seek(max(0, size - LOG_BYTES))
        text = file.read(LOG_BYTES).decode(errors="replace")
    return text if size <= LOG_BYTES else text.partition("\n")[2]


def main() -> None:
    """Evaluate the rules from standard input."""
    log, seconds_each, pairs = json.load(sys.stdin)
    match = first_match([LogRule(*pair) for pair in pairs], read_end(Path(log)), seconds_each)
    json.dump(None if match is None else [match.rule, match.line], sys.stdout)


def _abort_match(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal module's signature
    raise SlowPatternError


if __name__ == "__main__":
    main()
