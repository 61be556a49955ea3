"""`rljob restart`: let a run continue in a new cluster."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from rljob.api import group, patches
from rljob.cli import change
from rljob.cli.arguments import Commands, Parser


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    change.add(
        commands,
        "restart",
        "save a checkpoint, and continue in a new cluster with edited fields, as the installed operator renders it",
        _run,
        examples=(("restart sums", "take over pending changes without losing a step"),),
    )


def _run(chosen: argparse.Namespace) -> int:
    value = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    does = "saves a checkpoint and continues in a new cluster"
    without = "begins at step 0 in a new cluster, because it has no spec.checkpoint"
    wanted = change.Change(
        patches.restart(value),
        does,
        without,
        (("restartRequest", value), ("state", "Training")),
        ("metadata", "annotations", group.RESTART),
        {"Suspended": f"`rljob resume {chosen.name}` begins a new cluster with the edited fields"},
    )
    return change.apply(chosen, wanted)
