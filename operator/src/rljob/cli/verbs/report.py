"""`rljob report`: write one HTML file about a run."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, hours, job_command

if TYPE_CHECKING:
    from rljob.cli.report.run import ReportRun

HOUR = 3600.0


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "report",
        "write one HTML file about a run: plots, attempts, usage and configuration",
        _report,
        reads_spec=True,
        examples=(
            ("report sums", "write report.html from the records in the cluster"),
            ("report sums -o json", "print the attempts of the run, and what it held, for a program"),
            ("report sums --prometheus http://localhost:9090 --since 48 -o sums.html", "report on a deleted job"),
        ),
    )
    made.add_argument(
        "-o",
        "--output",
        default="report.html",
        metavar="FILE|FORMAT",
        help=f"file to write, or one of {', '.join(output.FORMS)} to print the run; default: report.html",
    )
    add_sources(made)


def add_sources(made: Parser) -> None:
    """Add the options that say where the records of a run are."""
    where = made.add_mutually_exclusive_group()
    where.add_argument(
        "--records",
        type=Path,
        metavar="FOLDER",
        help="folder where observability.logPath is mounted; default: read the records in a pod",
    )
    where.add_argument("--prometheus", metavar="URL", help="use the metrics that this Prometheus has scraped")
    where.add_argument("--local", action="store_true", help="report on a run of `rljob run --local`")
    made.add_argument("--workdir", type=Path, metavar="FOLDER", help="folder of a local run; default: .rljob/NAME")
    made.add_argument(
        "--since", type=hours, metavar="HOURS", help="how far back to query Prometheus for a deleted job, in hours"
    )


def _report(chosen: argparse.Namespace) -> int:
    from rljob.cli.report.write_report import run_page, write_report

    run = gather(chosen)
    if chosen.output in output.FORMS:
        print(run_page(run, chosen.output))
        return 0
    print(write_report(run, Path(chosen.output)))
    for note in run.notes:
        print(f"note: {note}")
    return 0


def gather(chosen: argparse.Namespace) -> ReportRun:
    """Return the run of a job with its records."""
    from rljob.cli.known_launchers import LAUNCHER
    from rljob.cli.report.cluster import Sources, cluster_run
    from rljob.cli.report.local import local_run

    if chosen.local or chosen.workdir:
        return local_run((chosen.workdir or Path(".rljob") / chosen.name).absolute())
    since = time.time() - chosen.since * HOUR if chosen.since is not None else None
    place = kubectl.Place(chosen.namespace, chosen.context)
    sources = Sources(chosen.records, chosen.prometheus, since)
    return cluster_run(chosen.name, place, sources, LAUNCHER, chosen.accelerators, chosen.command)
