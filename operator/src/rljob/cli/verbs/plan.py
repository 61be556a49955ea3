"""`rljob plan`: estimate what a job needs and how long it takes."""

from __future__ import annotations

import argparse
from pathlib import Path

from rljob.cli import output
from rljob.cli.arguments import Commands, Parser, command, file_command
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit
from rljob.cli.plan.arguments import TOPICS, add_topics

EXAMPLES = {
    "memory": (("plan memory -f job.yaml", "show the memory of a die in each phase of a step"),),
    "rollout": (("plan rollout -f job.yaml --page rollout.html", "simulate the rollout, and draw it"),),
    "report": (("plan report -f job.yaml --cards 64", "compare the layouts that fit on 64 cards"),),
    "experts": (
        (
            "plan experts --load counts.npy --devices 32 --replicas 288 --map map.json",
            "place 256 experts, some of them twice, by their tokens",
        ),
    ),
}


def add(commands: Commands[Parser]) -> None:
    """Add the command of each topic."""
    planning = commands.add_parser("plan", help="estimate what a job needs and how long it takes")
    planning.examples = tuple(example for each in EXAMPLES.values() for example in each)
    topics = planning.add_subparsers(dest="topic", required=True, metavar="TOPIC")
    _add_experts(topics)
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
        for name, help_text in TOPICS.items()
    )
    add_topics(memory, rollout, layouts)


def _add_experts(topics: Commands[Parser]) -> None:
    experts = command(
        topics,
        "experts",
        "write the expert map of a vllm-ascend server outside of RLJob, from counts of tokens per expert",
        _experts,
        outputs=output.FORMS,
        examples=EXAMPLES["experts"],
    )
    experts.add_argument(
        "--load", type=Path, required=True, metavar="FILE", help="tokens per expert: JSON, or what numpy.save wrote"
    )
    experts.add_argument(
        "--devices", type=int, required=True, metavar="NUMBER", help="ranks of expert parallelism of the server"
    )
    experts.add_argument(
        "--replicas", type=int, required=True, metavar="NUMBER", help="experts of a layer on all devices together"
    )
    experts.add_argument(
        "--map", type=Path, required=True, metavar="FILE", help="file to write, for eplb_config.expert_map_path"
    )
    experts.add_argument("--current", type=Path, metavar="FILE", help="map in use, from which few replicas should move")


def _experts(chosen: argparse.Namespace) -> int:
    """Write an expert map and print what it achieves."""
    try:
        from rljob.cli.plan.experts import ExpertsRequest, experts_table, plan_experts
    except ModuleNotFoundError as error:
        if error.name != "numpy":
            raise
        raise UsageError("plan experts needs numpy; install `rljob[planner]`") from error

    request = ExpertsRequest(chosen.load, chosen.devices, chosen.replicas, chosen.map, chosen.current)
    achieved = plan_experts(request)
    as_data = chosen.output in output.DATA
    print(output.data_page([achieved], chosen.output, [achieved["map"]]) if as_data else experts_table(achieved))
    return Exit.SUCCESS


def _plan(chosen: argparse.Namespace) -> int:
    """Estimate what a job needs and how long it takes; exit code 1 if a job is invalid or does not fit."""
    from rljob.api.training import MemoryCheck
    from rljob.cli.judged import chosen_files, complain, judge
    from rljob.cli.known_launchers import LAUNCHER
    from rljob.cli.plan.memory import read_config
    from rljob.cli.plan.topics import PLANNERS

    shape = read_config(chosen.model_config) if chosen.model_config else None
    judged = judge(chosen_files(chosen), chosen, MemoryCheck.WARN)
    complain(judged, warnings=False)
    if any(checked.spec is None for _, checked in judged):
        return Exit.NEGATIVE
    valid = [(job, checked.spec) for job, checked in judged if checked.spec is not None]
    return PLANNERS[chosen.topic](chosen, valid, shape, LAUNCHER)
