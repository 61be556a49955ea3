"""`rljob list`: list jobs as `kubectl get rljobs` does, in every format."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, add_all_namespaces, command


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = command(
        commands,
        "list",
        "list RLJobs with state, progress and age",
        _run,
        outputs=output.FORMS,
        namespace="namespace of the jobs; default: the namespace of the context",
        examples=(
            ("list -A -o wide", "list the jobs of all namespaces, with class, cards, queue and message"),
            ("list --state Failed -o name", "name the failed jobs, for a script"),
        ),
    )
    add_all_namespaces(made)
    made.add_argument("-l", "--selector", metavar="LABELS", help="only jobs with these labels, such as team=a")
    made.add_argument("--state", action="append", metavar="STATE", help="only jobs in this state; repeatable")


def _run(chosen: argparse.Namespace) -> int:
    from rljob.cli.job_list import list_page
    from rljob.cli.status import status_document

    place = kubectl.Place(chosen.namespace, chosen.context)
    chosen_labels = ("--selector", chosen.selector) if chosen.selector else ()
    jobs = kubectl.list_jobs(place, *chosen_labels, everywhere=chosen.all_namespaces)
    wanted = {state.lower() for state in chosen.state or ()}
    jobs = [job for job in jobs if not wanted or str((job.get("status") or {}).get("state")).lower() in wanted]
    if chosen.output in output.DATA:
        print(output.data_page([{"jobs": [status_document(job) for job in jobs]}], chosen.output))
    else:
        wide = chosen.output == output.WIDE
        print(list_page(jobs, datetime.now(UTC), wide=wide, everywhere=chosen.all_namespaces))
    return 0
