"""`rljob stop`: end a job for good."""

from __future__ import annotations

import argparse

from rljob.api import patches
from rljob.cli import change
from rljob.cli.arguments import Commands, Parser


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = change.add(
        commands,
        "stop",
        "end a job for good, after a checkpoint; the job stays in the cluster as Stopped",
        _run,
        examples=(
            ("stop sums --wait", "save a checkpoint, end the run, and return when it has ended"),
            ("stop sums --now", "end the run at once; what it did since its last checkpoint is lost"),
        ),
    )
    made.add_argument("--now", action="store_true", help="do not save a checkpoint first (spec.stop.mode Immediate)")


def _run(chosen: argparse.Namespace) -> int:
    does = "ends at once, without a checkpoint" if chosen.now else "saves a checkpoint and ends"
    without = does if chosen.now else "ends without a checkpoint, because it has no spec.checkpoint"
    wanted = change.Change(
        patches.stop(now=chosen.now), does, without, (("state", "Stopped"),), ("spec", "stop", "requested")
    )
    return change.apply(chosen, wanted)
