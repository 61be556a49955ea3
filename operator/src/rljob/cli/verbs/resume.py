"""`rljob resume`."""

from __future__ import annotations

import argparse

from rljob.api import patches
from rljob.cli import change
from rljob.cli.arguments import Commands, Parser


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    change.add(
        commands,
        "resume",
        "let a suspended job continue from its checkpoint",
        _run,
        examples=(("resume sums", "continue from the last checkpoint"),),
    )


def _run(chosen: argparse.Namespace) -> int:
    wanted = change.Change(
        patches.resume(),
        "continues from its last checkpoint",
        "begins at step 0, because it has no spec.checkpoint",
        (("state", "Training"),),
        ("spec", "suspend"),
    )
    return change.apply(chosen, wanted)
