"""`rljob plan`: estimate what a job needs and how long it takes."""

from __future__ import annotations

import argparse

from rljob.cli import output, plan_arguments
from rljob.cli.arguments import Commands, Parser, file_command
from rljob.cli.exits import Exit

EXAMPLES = {
    "memory": (("plan memory -f job.yaml", "show the memory of a die in each phase of a step"),),
    "rollout": (("plan rollout -f job.yaml --page rollout.html", "simulate the rollout, and draw it"),),
    "report": (("plan report -f job.yaml --cards 64", "compare the layouts that fit on 64 cards"),),
}


def add(commands: Commands[Parser]) -> None:
    """Add the command of each topic."""
    planning = commands.add_parser("plan", help="estimate what a job needs and how long it takes")
    planning.examples = tuple(example for each in EXAMPLES.values() for example in each)
    topics = planning.add_subparsers(dest="topic", required=True, metavar="TOPIC")
    memory, rollout, layouts = (
        file_command(
            topics,
            name,
            help_text,
            _plan,
            outputs=output.FORMS,
            exits={Exit.NEGATIVE: "a job is invalid or does not fit"},
            required=name != "memory",
            examples=EXAMPLES[name],
        )
        for name, help_text in plan_arguments.TOPICS.items()
    )
    plan_arguments.add(memory, rollout, layouts)


def _plan(chosen: argparse.Namespace) -> int:
    """Estimate what a job needs and how long it takes; exit code 1 if a job is invalid or does not fit."""
    from rljob.api.training import MemoryCheck
    from rljob.cli.judged import chosen_files, complain, judge
    from rljob.cli.launcher import LAUNCHER
    from rljob.cli.plan import read_config
    from rljob.cli.plan_topics import TOPICS

    shape = read_config(chosen.model_config) if chosen.model_config else None
    judged = judge(chosen_files(chosen), chosen, MemoryCheck.WARN)
    complain(judged, warnings=False)
    if any(checked.spec is None for _, checked in judged):
        return Exit.NEGATIVE
    valid = [(job, checked.spec) for job, checked in judged if checked.spec is not None]
    return TOPICS[chosen.topic](chosen, valid, shape, LAUNCHER)
