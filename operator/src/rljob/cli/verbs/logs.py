"""`rljob logs`: the log of the driver, of the head or of the workers, also after the pods are gone."""

from __future__ import annotations

import argparse
import sys
from collections import deque
from pathlib import Path
from typing import TYPE_CHECKING

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, count, job_command
from rljob.cli.errors import UsageError

if TYPE_CHECKING:
    from rljob.cli.logs import Wanted

ROLES = ("driver", "head", "worker")


def add(commands: Commands[Parser]) -> None:
    """Add the command."""
    made = job_command(
        commands,
        "logs",
        "show the log of a run: of the driver, in which Ray collects the output of all ranks, or of the pods",
        _logs,
        examples=(
            ("logs sums -f", "follow the driver of the last attempt"),
            ("logs sums --role worker --tail 100", "show the ends of the logs of all worker pods"),
            ("logs sums --attempt 2", "show an earlier attempt, from the volume of observability.logPath"),
            ("logs sums --records /mnt/logs", "show the last attempt of a deleted job, where its volume is mounted"),
            ("logs sums --collect", "copy the logs of all nodes and devices, and the stacks, to the log volume"),
        ),
        outputs=output.FORMS,
    )
    made.add_argument("-f", "--follow", action="store_true", help="show what is added, until Ctrl-C or the pod's end")
    made.add_argument("--role", choices=ROLES, default=ROLES[0], help="whose log to show; default: driver")
    made.add_argument("--attempt", type=count, metavar="N", help="number of the attempt; default: the last one")
    made.add_argument("--tail", type=count, metavar="LINES", help="lines from the end; default: all")
    made.add_argument(
        "--records",
        type=Path,
        metavar="FOLDER",
        help="folder where observability.logPath is mounted, for a deleted job; default: ask the cluster",
    )
    made.add_argument(
        "--collect",
        action="store_true",
        help="copy the logs of a running job's nodes and devices, and its stacks, to its log volume; the run continues",
    )


def _logs(chosen: argparse.Namespace) -> int:
    from rljob.cli import logs

    if chosen.collect:
        return _collect(chosen)
    if chosen.output in output.DATA:
        raise UsageError(f"--output {chosen.output} needs --collect; a log has no other form than its text")
    lines = chosen.tail if chosen.tail is not None else logs.ALL
    wanted = logs.Wanted(chosen.role, chosen.attempt, lines, chosen.follow)
    if chosen.records is not None:
        return _show_files(chosen, wanted)
    place = kubectl.Place(chosen.namespace, chosen.context)
    return logs.show(kubectl.get_recorded_job(chosen.name, place, chosen.command), wanted, place)


def _collect(chosen: argparse.Namespace) -> int:
    from rljob.cli import collect

    if chosen.follow or chosen.records is not None or chosen.attempt is not None:
        raise UsageError("--collect works on the running attempt; leave out --follow, --records and --attempt")
    done = collect.collect(chosen.name, kubectl.Place(chosen.namespace, chosen.context))
    asked = chosen.output in output.DATA
    print(output.data_page([collect.document(done)], chosen.output) if asked else collect.describe(done))
    return 0


def _show_files(chosen: argparse.Namespace, wanted: Wanted) -> int:
    from rljob.cli import logs

    if wanted.follow:
        raise UsageError("--follow follows a running pod; leave out it or --records")
    files = logs.kept_files(chosen.records, chosen.name, wanted)
    for path in files:
        if len(files) > 1:
            print(f"==> {path.relative_to(chosen.records)}")
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file if wanted.lines == logs.ALL else deque(file, maxlen=wanted.lines):
                sys.stdout.write(line)
    return 0
