"""`rljob describe`: explain why a job does not run."""

from __future__ import annotations

import argparse
import textwrap
from datetime import UTC, datetime

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, job_command
from rljob.cli.exits import Exit
from rljob.cli.output import DATA, data_page

PARAGRAPH_WIDTH = 100


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    job_command(
        commands,
        "describe",
        "explain why an RLJob does not run: queue, quota, nodes, image or volume",
        _describe,
        outputs=output.FORMS,
        exits={Exit.NEGATIVE: "the job failed or is invalid"},
        examples=(("describe sums", "say in a paragraph what the job waits for, and what to do"),),
    )


def _describe(chosen: argparse.Namespace) -> int:
    from rljob.cli.describe import why
    from rljob.cli.status import status_document
    from rljob.cli.world import read_world
    from rljob.reading import start

    job = kubectl.get_job(chosen.name, kubectl.Place(chosen.namespace, chosen.context))
    place = kubectl.Place(job["metadata"]["namespace"], chosen.context)
    world = read_world(start.with_current(job, datetime.now(UTC)), place)
    reason = why(world)
    if chosen.output in DATA:
        document = status_document(job)
        print(
            data_page([{key: document[key] for key in ("namespace", "job", "state")} | {"why": reason}], chosen.output)
        )
    else:
        print("\n".join(textwrap.wrap(reason, PARAGRAPH_WIDTH, break_long_words=False, break_on_hyphens=False)))
    return Exit.NEGATIVE if world.status.get("state") in ("Failed", "Invalid") else 0
