"""`rljob report`: write one HTML file about a run."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, hours, job_command, split_name
from rljob.cli.errors import UsageError

if TYPE_CHECKING:
    from rljob.cli.report.run import ReportRun, Wanted

HOUR = 3600.0
STEPS_OF_SAMPLES = 8
"""Steps, and as many validations, of which the page has answers."""


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
            ("report sums sums-2", "compare two runs: curves, figures and the fields that differ"),
            ("report sums -o json", "print the attempts of the run, and what it held, for a program"),
            ("report sums --prometheus http://localhost:9090 --since 48 -o sums.html", "report on a deleted job"),
        ),
    )
    made.add_argument("other", nargs="?", metavar="OTHER", help="a second RLJob, to compare both on one page")
    made.add_argument(
        "-o",
        "--output",
        default="report.html",
        metavar="FILE|FORMAT",
        help=f"file to write, or one of {', '.join(output.FORMS)} to print the run; default: report.html",
    )
    add_sources(made)


def add_sources(made: Parser, *, prometheus: bool = True) -> None:
    """Add the options that say where the records of a run are; Prometheus has metrics only."""
    where = made.add_mutually_exclusive_group()
    where.add_argument(
        "--records",
        type=Path,
        metavar="FOLDER",
        help="folder where observability.logPath is mounted; default: read the records in a pod",
    )
    where.add_argument("--local", action="store_true", help="report on a run of `rljob run --local`")
    made.add_argument("--workdir", type=Path, metavar="FOLDER", help="folder of a local run; default: .rljob/NAME")
    made.set_defaults(prometheus=None, since=None)
    if prometheus:
        where.add_argument("--prometheus", metavar="URL", help="use the metrics that this Prometheus has scraped")
        made.add_argument(
            "--since", type=hours, metavar="HOURS", help="how far back to query Prometheus for a deleted job, in hours"
        )


def _report(chosen: argparse.Namespace) -> int:
    from rljob.cli.report.run import Wanted
    from rljob.cli.report.write_report import run_page, write_report
    from rljob.reading.samples import spread

    if chosen.other is not None:
        return _compare(chosen)
    run = gather(chosen, Wanted(samples=lambda found: spread(found, STEPS_OF_SAMPLES)))
    if chosen.output in output.FORMS:
        print(run_page(run, chosen.output))
        return 0
    print(write_report(run, Path(chosen.output)))
    for note in run.notes:
        print(f"note: {note}")
    return 0


def _compare(chosen: argparse.Namespace) -> int:
    from datetime import UTC, datetime

    from rljob.cli.report.compare import compare_page
    from rljob.cli.report.local import ATTEMPT
    from rljob.cli.report.run import Wanted
    from rljob.cli.report.write_report import write_page

    if chosen.output in output.FORMS or chosen.workdir is not None:
        raise UsageError(
            "a comparison is a page, and --workdir is the folder of one run; leave out OTHER, or "
            f"{'--workdir' if chosen.workdir is not None else f'--output {chosen.output}'}"
        )
    if chosen.records is not None and any(chosen.records.glob(f"{ATTEMPT}*")):
        raise UsageError(
            f"--records {chosen.records} is the folder of one RayCluster; for two jobs name the folder at which "
            "observability.logPath is mounted"
        )
    first = gather(chosen, Wanted())
    # A namespace before the second name is its own, whatever the first one has.
    namespace, name = split_name(chosen.other, None)
    namespace = namespace or chosen.namespace
    second = gather(argparse.Namespace(**{**vars(chosen), "name": name, "namespace": namespace}), Wanted())
    write_page(Path(chosen.output), compare_page(first, second, datetime.now(UTC)), "--output")
    print(f"{chosen.output} ({first.name}: {len(first.steps)} steps, {second.name}: {len(second.steps)} steps)")
    return 0


def gather(chosen: argparse.Namespace, wanted: Wanted) -> ReportRun:
    """Return the run of a job with what is wanted of its records."""
    from rljob.cli.known_launchers import LAUNCHER
    from rljob.cli.report.cluster import Sources, cluster_run
    from rljob.cli.report.local import local_run

    if chosen.local or chosen.workdir:
        return local_run((chosen.workdir or Path(".rljob") / chosen.name).absolute(), wanted)
    since = time.time() - chosen.since * HOUR if chosen.since is not None else None
    place = kubectl.Place(chosen.namespace, chosen.context)
    sources = Sources(chosen.records, chosen.prometheus, since, wanted)
    return cluster_run(chosen.name, place, sources, LAUNCHER, chosen.accelerators, chosen.command)
