"""`rljob list`: list jobs as `kubectl get rljobs` does, in every format."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, add_all_namespaces, command
from rljob.cli.status import status_document, table
from rljob.reading import figures
from rljob.reading.figures import ABSENT

if TYPE_CHECKING:
    from rljob.core.observed import Manifest

HEADS = ("NAME", "STATE", "STEP", "REWARD", "TPS/CARD", "RESTARTS", "AGE")
WIDE = ("CLASS", "CARDS", "QUEUE", "CLUSTER", "MESSAGE")
MESSAGE_CHARACTERS = 160


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


def list_page(jobs: Sequence[Manifest], now: datetime, *, wide: bool, everywhere: bool) -> str:
    """Return the table, by namespace and name."""
    if not jobs:
        return "no RLJobs"
    ordered = sorted(jobs, key=lambda job: (job["metadata"].get("namespace", ""), job["metadata"]["name"]))
    first = ("NAMESPACE",) if everywhere else ()
    rows = [
        (*((str(job["metadata"].get("namespace", ABSENT)),) if everywhere else ()), *_row(job, now, wide=wide))
        for job in ordered
    ]
    return table([(*first, *HEADS, *(WIDE if wide else ())), *rows])


def _row(job: Manifest, now: datetime, *, wide: bool) -> tuple[str, ...]:
    status, spec = job.get("status") or {}, job.get("spec") or {}
    progress = status.get("progress") or {}
    cells = (
        str(job["metadata"]["name"]),
        str(status.get("state") or "Unknown"),
        figures.steps(progress),
        figures.reward(progress.get("reward")),
        figures.rate(progress.get("tokensPerSecondPerCard")),
        str(status.get("restarts", 0)),
        age(job["metadata"].get("creationTimestamp"), now),
    )
    if not wide:
        return cells
    return (
        *cells,
        str((spec.get("accelerator") or {}).get("class") or ABSENT),
        str((status.get("resolved") or {}).get("cards") or ABSENT),
        str((spec.get("scheduling") or {}).get("queueName") or ABSENT),
        str((status.get("rayCluster") or {}).get("name") or ABSENT),
        str(status.get("message") or ABSENT)[:MESSAGE_CHARACTERS],
    )


def age(created: object, now: datetime) -> str:
    """Return an age in its largest unit, as kubectl shows it."""
    if not created:
        return ABSENT
    passed = max(0, int((now - datetime.fromisoformat(str(created))).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if passed >= 2 * length:
            return f"{passed // length}{unit}"
    return f"{passed}s"
