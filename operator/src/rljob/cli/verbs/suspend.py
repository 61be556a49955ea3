"""`rljob suspend`."""

from __future__ import annotations

import argparse

from rljob.api import patches
from rljob.cli import change
from rljob.cli.arguments import Commands, Parser


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    change.add(
        commands,
        "suspend",
        "save a checkpoint and release the NPUs; `rljob resume` lets the job continue",
        _run,
        examples=(("suspend sums --wait", "release the NPUs, and return when they are free"),),
    )


def _run(chosen: argparse.Namespace) -> int:
    wanted = change.Change(
        patches.suspend(),
        "saves a checkpoint and releases its NPUs; `rljob resume` lets it continue",
        "releases its NPUs; without spec.checkpoint nothing is saved, and `rljob resume` lets it begin at step 0",
        (("state", "Suspended"),),
        ("spec", "suspend"),
    )
    return change.apply(chosen, wanted)
