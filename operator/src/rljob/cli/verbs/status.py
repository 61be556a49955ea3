"""`rljob status`: show one job, once or until it ends."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, add_interval, job_command
from rljob.cli.errors import UsageError
from rljob.cli.exits import Exit
from rljob.cli.output import DATA, data_page


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "status",
        "show the state of an RLJob; exit code 1 if it failed",
        _status,
        outputs=output.FORMS,
        exits={Exit.NEGATIVE: "the job failed or is invalid"},
        examples=(
            ("status sums", "show state, progress, conditions and attempts"),
            ("status team-a/sums --watch", "follow the job until it ends"),
        ),
    )
    made.add_argument(
        "-w", "--watch", action="store_true", help="follow it until it ends; the exit code reflects how it ended"
    )
    add_interval(made)


def _status(chosen: argparse.Namespace) -> int:
    from rljob.cli.status import describe, failed, status_document
    from rljob.cli.watch import watch_status
    from rljob.reading import start

    place = kubectl.Place(chosen.namespace, chosen.context)
    if chosen.watch:
        if chosen.output in DATA:
            raise UsageError(f"--watch shows text; leave out --watch or -o {chosen.output}")
        return watch_status(chosen.name, place, chosen.interval)
    job = kubectl.get_job(chosen.name, place)
    if chosen.output in DATA:
        print(data_page([status_document(job)], chosen.output))
    else:
        print(describe(start.with_current(job, datetime.now(UTC))))
    return Exit.NEGATIVE if failed(job) else 0
