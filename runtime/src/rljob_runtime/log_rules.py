"""Restart rules with `onLogPattern`: which of them matches the log of a driver that failed.

Judged once, at a failing end: a line that matches in a healthy run harms nobody. The launcher asks a process of its
own, because a pattern that backtracks would stand in the way of everything else. All is bounded: the end of the log
that is read, the length of a line, the time of each rule and of all together. Run as a module, this reads a question
from standard input and prints the answer, both JSON.
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
"""Of the end of the log: what made a run fail is not far from it."""
LINE_CHARACTERS = 4096
SECONDS = 10.0
"""For all rules, with the start of the process that judges; those of one rule count while it computes."""
MATCHING_SHARE = 0.7
SHOWN_CHARACTERS = 200
JUDGED = (ExitCode.FAILED, ExitCode.ENVIRONMENT, ExitCode.STALLED)
"""Ends that another attempt may cure; the rest is no failure, or never retried."""
COLOURS = re.compile(r"\x1b\[[0-9;]*m")
"""Ray colours the name of the process before each line that it forwards to the driver."""


@dataclass(frozen=True)
class Match:
    """A rule and the line that it matched."""

    rule: str
    line: str


class SlowPatternError(Exception):
    """A pattern took its time."""


def require_patterns(job: JobConfig) -> None:
    """Refuse a pattern that Python does not know; the operator has checked them by its own table."""
    for rule in job.log_rules:
        try:
            re.compile(rule.pattern)
        except re.error as error:
            raise RefusedError(
                ExitCode.BAD_CONFIG,
                "RulePatternInvalid",
                f"restart.rules {rule.name}: onLogPattern {rule.pattern!r}: {error}",
            ) from error


def judged(outcome: Outcome, rules: Sequence[LogRule], log: Path | None, seconds: float = SECONDS) -> Outcome:
    """Give the outcome with the rule that decides about it, if one matches; reason and cause stay."""
    if not rules or log is None or outcome.exit_code not in JUDGED or outcome.reason == FENCED:
        return outcome
    match = ask(rules, log, seconds)
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


def ask(rules: Sequence[LogRule], log: Path, seconds: float) -> Match | None:
    """Find the first rule that matches a line, in a process of its own."""
    each = MATCHING_SHARE * seconds / len(rules)
    question = json.dumps([str(log), each, [[rule.name, rule.pattern] for rule in rules]])
    words = [sys.executable, "-m", "rljob_runtime.log_rules"]
    try:
        done = subprocess.run(words, input=question, capture_output=True, text=True, timeout=seconds, check=True)
        answer = json.loads(done.stdout)
        print(done.stderr, end="", file=sys.stderr, flush=True)  # noqa: T201
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        print(f"rljob: the restart rules could not be judged: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return None
    return Match(*answer) if answer else None


def first_match(rules: Sequence[LogRule], text: str, seconds_each: float) -> Match | None:
    """Find the first rule, in the manifest's order, that matches a line; a slow one is given up and told."""
    lines = list(lines_of(text))
    before = signal.signal(signal.SIGVTALRM, _give_up)
    try:
        for rule in rules:
            pattern = re.compile(rule.pattern)
            signal.setitimer(signal.ITIMER_VIRTUAL, seconds_each)  # re heeds signals while it matches
            try:
                for line in lines:
                    if pattern.search(line):
                        return Match(rule.name, line)
            except SlowPatternError:
                told = f"rljob: restart rule {rule.name} took {seconds_each:g} s and counts as no match"
                print(told, file=sys.stderr, flush=True)  # noqa: T201
            finally:
                signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    finally:
        signal.signal(signal.SIGVTALRM, before)
    return None


def lines_of(text: str) -> Iterator[str]:
    """Give the lines of a log, bounded and without colours; progress bars end theirs with a carriage return."""
    for line in re.split(r"[\r\n]+", text):
        if line:
            yield COLOURS.sub("", line[:LINE_CHARACTERS])


def read_end(log: Path) -> str:
    """Read the end of a log, from its first whole line on."""
    with log.open("rb") as file:
        size = log.stat().st_size
        file.seek(max(0, size - LOG_BYTES))
        text = file.read(LOG_BYTES).decode(errors="replace")
    return text if size <= LOG_BYTES else text.partition("\n")[2]


def main() -> None:
    """Answer one question."""
    log, seconds_each, pairs = json.load(sys.stdin)
    match = first_match([LogRule(*pair) for pair in pairs], read_end(Path(log)), seconds_each)
    json.dump(None if match is None else [match.rule, match.line], sys.stdout)


def _give_up(signum: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signal module's signature
    raise SlowPatternError


if __name__ == "__main__":
    main()
