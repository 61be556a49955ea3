"""The arguments of `rljob plan`, beside those of every command that reads files."""

from __future__ import annotations

import argparse
from pathlib import Path

LENGTHS = ("bimodal", "dapo-34k", "deepscaler-32k", "deepscaler-3k", "openr1-32k", "uniform")
"""Names of `rljob.planner.rollout.published`, which `--help` does not load."""
TOP = 5
"""Layouts that `plan report` shows."""
COUNT_MAX = 65_536
"""Cards of a plan."""
NUMERALS = 9
"""Numerals that are read; none of a number in range is cut off."""
TOPICS = {
    "memory": "estimate the memory of a die in each phase of a step; exit code 1 if it does not fit",
    "rollout": "simulate the rollout of a step by policy of placement: seconds, idle ranks, padding, tail and floor",
    "report": "compare the layouts of a job that fit: seconds of a step, tokens per second, bottleneck and switches",
}


def add_topics(
    memory: argparse.ArgumentParser, rollout: argparse.ArgumentParser, report: argparse.ArgumentParser
) -> None:
    """Add the arguments of each topic."""
    memory.add_argument("files", nargs="*", metavar="FILE", help="the same as -f FILE")
    rollout.add_argument("--page", type=Path, metavar="FILE", help="also draw it on an HTML page")
    report.add_argument(
        "--cards", type=_count, metavar="NUMBER", help="plan for this many cards; default: those of the job"
    )
    report.add_argument("--top", type=_count, default=TOP, metavar="NUMBER", help=f"layouts to show; default: {TOP}")
    for topic in (rollout, report):
        _add_lengths(topic)
    for topic in (memory, rollout, report):
        topic.add_argument(
            "--model-config", type=Path, metavar="FILE", help="config.json of a model that is not built in"
        )


def _add_lengths(topic: argparse.ArgumentParser) -> None:
    """Add the options that say which lengths of responses are simulated."""
    lengths = topic.add_mutually_exclusive_group()
    lengths.add_argument(
        "--trace", type=Path, metavar="FILE", help="lengths of a run's responses, as JSON lines; default: drawn lengths"
    )
    lengths.add_argument(
        "--lengths", choices=LENGTHS, help="distribution to draw lengths from; default: by maxResponseTokens"
    )
    topic.add_argument("--seed", type=int, metavar="NUMBER", help="seed of drawn lengths; default: that of the lengths")


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:NUMERALS]) <= COUNT_MAX:
        raise argparse.ArgumentTypeError(f"{text[:NUMERALS]!r} must be a whole number from 1 to {COUNT_MAX:,}")
    return int(text[:NUMERALS])
