"""`rljob logs`: the log of the driver, of the head or of the workers, also after the pods are gone.

The driver's log contains the output of all ranks, because Ray forwards it. In a running head it is a file of Ray; the
launcher copies it to the volume of observability.logPath, where it outlives the pods (spool/mirror.py of the runtime).
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob.cli import kubectl, output
from rljob.cli.arguments import Commands, Parser, count, job_command
from rljob.cli.errors import UsageError
from rljob.cli.live_pods import live_head, live_pods, no_pod, place_of
from rljob.reading.job_pods import CONTAINERS, DRIVER, HEAD, KEPT, RAY_LOGS, WORKER, cluster_of, identity
from rljob.render.names import submission_id

if TYPE_CHECKING:
    from rljob.core.observed import Manifest

ROLES = (DRIVER, HEAD, WORKER)
WORKERS_MAX = 128
"""Workers whose logs are followed at once (kubectl logs --max-log-requests)."""
ALL = -1
_PRINT = """cd "$0" 2>/dev/null || exit 0
for folder in $1; do
  for f in $(cd "$folder" 2>/dev/null && ls -d $2 2>/dev/null); do
    echo "==> $folder/$f"
    if [ "$3" = -1 ]; then cat "$folder/$f"; else tail -n "$3" "$folder/$f"; fi
  done
done"""
"""Prints the files $2 in the folders $1 below $0, at most $3 lines of each."""
_TAIL = """f="$0"
if [ -n "$2" ]; then exec tail -n "$1" -F "$f"; fi
if [ ! -f "$f" ]; then echo "rljob: $f does not exist yet" >&2; exit 1; fi
exec tail -n "$1" "$f\""""
"""Prints the file $0: its last $1 lines, and with $2 what is added to it."""


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
    if chosen.collect:
        return _collect(chosen)
    if chosen.output in output.DATA:
        raise UsageError(f"--output {chosen.output} needs --collect; a log has no other form than its text")
    lines = chosen.tail if chosen.tail is not None else ALL
    wanted = Wanted(chosen.role, chosen.attempt, lines, chosen.follow)
    if chosen.records is not None:
        return _show_files(chosen, wanted)
    place = kubectl.Place(chosen.namespace, chosen.context)
    return show(kubectl.get_recorded_job(chosen.name, place, chosen.command), wanted, place)


def _collect(chosen: argparse.Namespace) -> int:
    from rljob.cli import collect

    if chosen.follow or chosen.records is not None or chosen.attempt is not None:
        raise UsageError("--collect works on the running attempt; leave out --follow, --records and --attempt")
    done = collect.collect(chosen.name, kubectl.Place(chosen.namespace, chosen.context))
    asked = chosen.output in output.DATA
    print(output.data_page([collect.document(done)], chosen.output) if asked else collect.describe(done))
    return 0


def _show_files(chosen: argparse.Namespace, wanted: Wanted) -> int:
    if wanted.follow:
        raise UsageError("--follow follows a running pod; leave out --follow or --records")
    files = kept_files(chosen.records, chosen.name, wanted)
    for path in files:
        if len(files) > 1:
            print(f"==> {path.relative_to(chosen.records)}")
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file if wanted.lines == ALL else deque(file, maxlen=wanted.lines):
                sys.stdout.write(line)
    return 0


@dataclass(frozen=True)
class Wanted:
    """Which log to show."""

    role: str
    attempt: int | None
    """None: the last one."""
    lines: int
    """Lines from the end; ALL for all."""
    follow: bool


def show(job: Manifest, wanted: Wanted, place: kubectl.Place) -> int:
    """Print a log, from the pods if they run and otherwise from the volume."""
    own, who = place_of(job, place), identity(job)
    attempt = _attempt(job, wanted.attempt)
    head = live_head(who, own)
    is_live = head is not None and (attempt is None or attempt["clusterName"] == cluster_of(head))
    if head is not None and is_live:
        return _show_live(job, head, attempt, wanted, own)
    if wanted.follow:
        raise no_pod(job, HEAD, own)
    if attempt is None:
        raise no_pod(job, HEAD, own)
    return _show_kept(job, attempt, wanted, own)


def _attempt(job: Manifest, number: int | None) -> Mapping[str, Any] | None:
    """Return the attempt of a number, or the last one."""
    attempts = (job.get("status") or {}).get("attempts") or []
    if number is None:
        return attempts[-1] if attempts else None
    for attempt in attempts:
        if attempt["number"] == number:
            found: Mapping[str, Any] = attempt
            return found
    listed = ", ".join(str(attempt["number"]) for attempt in attempts) or "none"
    raise UsageError(
        f"--attempt {number}: the status of {job['metadata']['name']} lists the attempts {listed}; an earlier one can "
        "be read with --records FOLDER, where observability.logPath is mounted"
    )


def _show_live(
    job: Manifest, head: Manifest, attempt: Mapping[str, Any] | None, wanted: Wanted, place: kubectl.Place
) -> int:
    lines = str(wanted.lines)
    if wanted.role == DRIVER:
        if attempt is None:
            raise UsageError(
                f"{job['metadata']['name']} has no attempt yet, so there is no driver; `rljob logs --role head` shows "
                "what Ray does"
            )
        name = submission_id(attempt["clusterName"], attempt["number"])
        # `tail -n +1` prints a whole file.
        count = "+1" if wanted.lines == ALL else lines
        script = ["sh", "-c", _TAIL, f"{RAY_LOGS}/job-driver-{name}.log", count, "f" if wanted.follow else ""]
        pod = head["metadata"]["name"]
        return kubectl.stream(["exec", pod, "--container", CONTAINERS[HEAD], "--", *script], place)
    options = ["--container", CONTAINERS[wanted.role], "--tail", lines, *(["--follow"] if wanted.follow else [])]
    if wanted.role == HEAD:
        return kubectl.stream(["logs", head["metadata"]["name"], *options], place)
    pods = live_pods(identity(job), WORKER, place)
    if not pods:
        raise no_pod(job, WORKER, place)
    if len(pods) == 1:
        return kubectl.stream(["logs", pods[0]["metadata"]["name"], *options], place)
    selector = f"ray.io/cluster={cluster_of(pods[0])},ray.io/node-type=worker"
    many = ["--selector", selector, "--prefix", "--max-log-requests", str(WORKERS_MAX)]
    return kubectl.stream(["logs", *many, *options], place)


def _show_kept(
    job: Manifest,
    attempt: Mapping[str, Any],
    wanted: Wanted,
    place: kubectl.Place,
) -> int:
    from rljob.cli.accelerators import accelerator_table
    from rljob.cli.frozen import frozen_snapshot
    from rljob.cli.report.fetch import opened
    from rljob.reading.frozen import snapshot_name

    name = snapshot_name(job)
    if name is None:
        raise no_pod(job, HEAD, place)
    spec = frozen_snapshot(job, name, place, accelerator_table([])).spec
    folder = f"{attempt['clusterName']}/attempt-{attempt['number']}"
    with opened(job, spec, place) as found:
        if spec.observability.log_path is None:
            raise UsageError(
                f"the cluster of attempt {attempt['number']} is gone and its logs were not kept; set "
                "observability.logPath for the next run"
            )
        words = [found.folder, folder, KEPT[wanted.role], str(wanted.lines)]
        return kubectl.stream(
            ["exec", found.pod, "--container", found.container, "--", "sh", "-c", _PRINT, *words], found.place
        )


def kept_files(folder: Path, name: str, wanted: Wanted) -> list[Path]:
    """Return the kept logs of a job below a mounted log folder, of the last attempt or of one."""
    if not folder.is_dir():
        raise UsageError(f"--records {folder}: no such folder; use the path at which observability.logPath is mounted")
    # The name of a RayCluster: <job>-<uid>-<generation>.
    cluster = re.compile(rf"{re.escape(name)}-[0-9a-f]{{5}}-(\d+)")
    attempts = sorted(
        (int(match[1]), int(path.name.removeprefix("attempt-")), path)
        for path in folder.glob("*/attempt-*")
        if (match := cluster.fullmatch(path.parent.name)) and path.name.removeprefix("attempt-").isdecimal()
    )
    chosen = [path for _, number, path in attempts if wanted.attempt in (None, number)]
    files = list(_files(chosen[-1], wanted.role)) if chosen else []
    if not files:
        raise kubectl.NotFoundError(
            f"--records {folder} contains no log of {wanted.role} of {name}"
            f"{'' if wanted.attempt is None else f', attempt {wanted.attempt}'}; check the name and the folder"
        )
    return files


def _files(attempt: Path, role: str) -> Iterator[Path]:
    for pattern in KEPT[role].split():
        yield from (path for path in sorted(attempt.glob(pattern)) if path.is_file() and not path.is_symlink())
