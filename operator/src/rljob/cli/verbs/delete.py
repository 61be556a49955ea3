"""`rljob delete`: delete a job with all that belongs to it."""

from __future__ import annotations

import argparse

from rljob.api import group
from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, job_command, seconds

SLACK_SECONDS = 20
"""More than kubectl needs to end a wait at its own deadline."""


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "delete",
        "delete a job with its cluster and status; checkpoints and kept logs stay on their volumes",
        _run,
        outputs=(output.TABLE, output.NAME),
        examples=(
            ("delete sums", "delete a job, and return when it is gone"),
            ("delete sums --force", "do not wait for a checkpoint (stop.requireCheckpoint)"),
        ),
    )
    made.add_argument("--force", action="store_true", help="do not wait for the checkpoint of stop.requireCheckpoint")
    made.add_argument("--timeout", type=seconds, default=600, metavar="TIME", help="limit of the wait; default: 10m")


def _run(chosen: argparse.Namespace) -> int:
    place = kubectl.Place(chosen.namespace, chosen.context)
    if chosen.force:
        kubectl.patch_job(chosen.name, {"metadata": {"annotations": {f"{group.GROUP}/force-delete": "true"}}}, place)
    words = ["delete", f"rljobs.{group.GROUP}", chosen.name, "--timeout", f"{chosen.timeout}s"]
    told = kubectl.run(words, place, seconds=chosen.timeout + SLACK_SECONDS)
    print(f"rljob.{group.GROUP}/{chosen.name}" if chosen.output == output.NAME else told.strip())
    return 0
