"""`rljob top`: show every job in a live table."""

from __future__ import annotations

import argparse

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, add_all_namespaces, add_interval, command
from rljob.cli.output import DATA, data_page


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = command(
        commands,
        "top",
        "show every RLJob in a live table; press Ctrl-C to exit",
        _top,
        outputs=output.FORMS,
        namespace="namespace of the jobs; default: the namespace of the context",
        examples=(
            ("top -A", "watch the jobs of all namespaces"),
            ("top --once", "print the table once"),
        ),
    )
    add_all_namespaces(made)
    made.add_argument(
        "--once", action="store_true", help="print the table once, which is the default without a terminal"
    )
    add_interval(made)


def _top(chosen: argparse.Namespace) -> int:
    from rljob.cli.status import status_document
    from rljob.cli.watch import top

    place = kubectl.Place(chosen.namespace, chosen.context)
    if chosen.output in DATA:
        jobs = kubectl.list_jobs(place, everywhere=chosen.all_namespaces)
        print(data_page([{"jobs": [status_document(job) for job in jobs]}], chosen.output))
        return 0
    return top(place, everywhere=chosen.all_namespaces, once=chosen.once, interval_seconds=chosen.interval)
