"""`rljob usage`: show the card-hours of a month."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, add_all_namespaces, command
from rljob.cli.errors import UsageError

if TYPE_CHECKING:
    from rljob.render.accelerator_table import AcceleratorTable

KINDS = ("queue", "job")


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = command(
        commands,
        "usage",
        "show card-hours of a month by team or job, held and productive; also as CSV",
        _usage,
        reads_spec=True,
        outputs=(*output.FORMS, output.CSV),
        namespace="namespace of the jobs; default: the namespace of the context",
        examples=(
            ("usage -A --month 2026-10 -o csv", "export a month, from the jobs that still exist"),
            ("usage -A --prometheus http://localhost:9090 --by job", "include deleted jobs"),
        ),
    )
    made.add_argument("--month", metavar="YYYY-MM", help="month in UTC; default: the current one")
    add_all_namespaces(made)
    made.add_argument(
        "--prometheus",
        metavar="URL",
        help="Prometheus to query; default: use the statuses of the jobs that still exist",
    )
    made.add_argument("--by", choices=KINDS, default=KINDS[0], help="what to sum by, with --prometheus; default: queue")


def _usage(chosen: argparse.Namespace) -> int:
    """Print how the cards were used in a month."""
    from rljob.cli import usage
    from rljob.cli.report.prometheus import Server

    now = datetime.now(tz=UTC)
    month = usage.read_month(chosen.month or f"{now:%Y-%m}", now)
    place = kubectl.Place(chosen.namespace, chosen.context)
    if chosen.prometheus:
        ask, namespace = Server(chosen.prometheus).query, None if chosen.all_namespaces else chosen.namespace
        if namespace is None and not chosen.all_namespaces:
            raise UsageError("with --prometheus, select a namespace with -n, or all with -A")
        rows = list((usage.job_rows if chosen.by == "job" else usage.queue_rows)(ask, month, namespace))
    else:
        jobs = kubectl.list_jobs(place, everywhere=chosen.all_namespaces)
        rows = list(usage.status_rows(((job, *_placed(job, place, chosen.accelerators)) for job in jobs), month, now))
        print(
            "rljob: only Prometheus has the usage of deleted jobs; pass --prometheus URL to include them",
            file=sys.stderr,
        )
        for job in jobs:
            if (hours := usage.undated_card_hours(job)) > 0:
                name = f"{job['metadata']['namespace']}/{job['metadata']['name']}"
                print(f"rljob: {name}: {hours:.2f} card-hours of early attempts are not included", file=sys.stderr)
    print(usage.usage_page(month, rows, chosen.output))
    return 0


def _placed(job: Mapping[str, Any], place: kubectl.Place, accelerators: AcceleratorTable) -> tuple[str, str]:
    """Return (queue, accelerator class) of a job, from its snapshot if the job uses a recipe."""
    from rljob.cli.frozen import frozen_snapshot
    from rljob.reading.frozen import snapshot_name

    spec, name = job.get("spec") or {}, snapshot_name(job)
    if spec.get("recipeRef") and name:
        try:
            frozen = frozen_snapshot(job, name, place, accelerators).spec
        except UsageError as error:
            # One job must not hide the usage of all others.
            metadata = job["metadata"]
            print(f"rljob: queue and class of {metadata['namespace']}/{metadata['name']}: {error}", file=sys.stderr)
        else:
            return frozen.scheduling.queue_name or "", frozen.accelerator.class_
    return (spec.get("scheduling") or {}).get("queueName", ""), (spec.get("accelerator") or {}).get("class", "")
