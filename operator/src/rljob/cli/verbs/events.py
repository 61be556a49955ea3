"""`rljob events`: the events of a job and of its objects."""

from __future__ import annotations

import argparse
import time

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, add_interval, job_command
from rljob.cli.errors import UsageError

EVENTS = "events.events.k8s.io"


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "events",
        "show the events of a job, of its RayClusters and of its pods, the newest last",
        _events,
        outputs=output.FORMS,
        examples=(
            ("events sums", "show what happened; the cluster keeps events for an hour"),
            ("events sums --follow", "also show new ones, until Ctrl-C"),
        ),
    )
    made.add_argument("-f", "--follow", action="store_true", help="show new events until Ctrl-C")
    add_interval(made)


def _events(chosen: argparse.Namespace) -> int:
    from rljob.cli import events
    from rljob.cli.job_pods import identity, place_of

    if chosen.follow and chosen.output in output.DATA:
        raise UsageError(f"--follow shows text; leave out it or -o {chosen.output}")
    place = kubectl.Place(chosen.namespace, chosen.context)
    job = kubectl.get_job(chosen.name, place)
    own, wide = place_of(job, place), chosen.output == output.WIDE
    found = events.of_job(kubectl.list_items(EVENTS, own), identity(job))
    if chosen.output in output.DATA:
        named = [{"apiVersion": "events.k8s.io/v1", "kind": "Event", **event} for event in found]
        print(output.data_page([{"events": named}], chosen.output))
        return 0
    print(events.events_page(found, wide=wide) if found else "no events; the cluster keeps them for an hour")
    while chosen.follow:
        time.sleep(chosen.interval)
        shown = {(event["metadata"]["uid"], events.seen(event)) for event in found}
        found = events.of_job(kubectl.list_items(EVENTS, own), identity(job))
        for event in found:
            if (event["metadata"]["uid"], events.seen(event)) not in shown:
                print("  ".join(events.row(event, wide=wide)), flush=True)
    return 0
