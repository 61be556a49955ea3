"""`rljob events`: the events of a job and of its objects, as a table of manifests of events.k8s.io/v1."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, add_interval, job_command
from rljob.cli.errors import UsageError
from rljob.cli.status import table
from rljob.reading.figures import ABSENT

if TYPE_CHECKING:
    from rljob.core.observed import Manifest
    from rljob.render.names import JobIdentity

EVENTS = "events.events.k8s.io"
HEADS = ("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")
WIDE = ("COUNT", "REPORTER")
MESSAGE_CHARACTERS = 1024
"""Limit of an event's note (kubernetes v1.36.2, pkg/apis/core/validation/events.go: NoteLengthLimit)."""


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
    from rljob.cli.live_pods import place_of
    from rljob.reading.job_pods import identity

    if chosen.follow and chosen.output in output.DATA:
        raise UsageError(f"--follow shows text; leave out --follow or -o {chosen.output}")
    place = kubectl.Place(chosen.namespace, chosen.context)
    job = kubectl.get_job(chosen.name, place)
    own, wide = place_of(job, place), chosen.output == output.WIDE
    found = of_job(kubectl.list_items(EVENTS, own), identity(job))
    if chosen.output in output.DATA:
        named = [{"apiVersion": "events.k8s.io/v1", "kind": "Event", **event} for event in found]
        print(output.data_page([{"events": named}], chosen.output))
        return 0
    print(events_page(found, wide=wide) if found else "no events; the cluster keeps them for an hour")
    while chosen.follow:
        time.sleep(chosen.interval)
        shown = {(event["metadata"]["uid"], seen(event)) for event in found}
        found = of_job(kubectl.list_items(EVENTS, own), identity(job))
        for event in found:
            if (event["metadata"]["uid"], seen(event)) not in shown:
                print("  ".join(row(event, wide=wide)), flush=True)
    return 0


def of_job(events: Sequence[Manifest], job: JobIdentity) -> list[Manifest]:
    """Return the events about a job, its RayClusters, pods and other objects, the oldest first."""
    mine = [event for event in events if _is_about(event.get("regarding") or {}, job)]
    return sorted(mine, key=seen)


def _is_about(regarding: Manifest, job: JobIdentity) -> bool:
    # The names of all objects of a job begin with the prefix, which contains a part of its uid. An evaluation is a job.
    name = str(regarding.get("name") or "")
    own = name == job.prefix or name.startswith(f"{job.prefix}-")
    word = name.removeprefix(f"{job.prefix}-").partition("-")[0]
    is_evaluation = word.startswith("e") and word[1:].isdecimal()
    return regarding.get("uid") == job.uid or (own and not is_evaluation)


def seen(event: Manifest) -> str:
    """Return when an event was seen last; such times sort as text."""
    times = (
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("deprecatedLastTimestamp"),
        event.get("eventTime"),
        event["metadata"].get("creationTimestamp"),
    )
    return next((str(time) for time in times if time), "")


def events_page(events: Sequence[Manifest], *, wide: bool = False) -> str:
    """Return the table."""
    return table([(*HEADS[:4], *(WIDE if wide else ()), HEADS[4]), *(row(event, wide=wide) for event in events)])


def row(event: Manifest, *, wide: bool = False) -> tuple[str, ...]:
    """Return the cells of an event."""
    regarding: dict[str, Any] = event.get("regarding") or {}
    count = (event.get("series") or {}).get("count") or event.get("deprecatedCount") or 1
    reporter = event.get("reportingController") or (event.get("deprecatedSource") or {}).get("component") or ABSENT
    return (
        # Microseconds are left out.
        f"{seen(event)[:19]}Z" if seen(event) else ABSENT,
        str(event.get("type") or ABSENT),
        str(event.get("reason") or ABSENT),
        f"{str(regarding.get('kind') or '').lower()}/{regarding.get('name') or ''}",
        *((str(count), str(reporter)) if wide else ()),
        " ".join(str(event.get("note") or "")[:MESSAGE_CHARACTERS].split()),
    )
