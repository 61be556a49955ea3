"""`rljob delete`: delete a job with all that belongs to it."""

from __future__ import annotations

import argparse

from rljob.api import group
from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, job_command, seconds
from rljob.cli.status import status_document

SLACK_SECONDS = 20
"""More than kubectl needs to end a wait at its own deadline."""


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "delete",
        "delete a job with its cluster and status; checkpoints and kept logs stay on their volumes",
        _run,
        outputs=output.FORMS,
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
    # Data about a job that is gone is what was known of it.
    is_shown = chosen.output in (output.JSON, output.YAML)
    shown = status_document(kubectl.get_job(chosen.name, place)) if is_shown else {}
    words = ["delete", f"rljobs.{group.GROUP}", chosen.name, "--timeout", f"{chosen.timeout}s"]
    answer = kubectl.run(words, place, seconds=chosen.timeout + SLACK_SECONDS)
    if chosen.output in output.DATA:
        print(output.data_page([{"job": chosen.name, **shown, "deleted": True}], chosen.output))
    else:
        print(answer.strip())
    return 0
