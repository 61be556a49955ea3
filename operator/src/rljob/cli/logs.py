"""Where the log of a job is: in a running pod, or kept on the volume of observability.logPath. Used by `rljob logs`.

The driver's log contains the output of all ranks, because Ray forwards it. In a running head it is a file of Ray; the
launcher copies it to the volume, where it outlives the pods (mirror.py of the runtime).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.job_pods import (
    CONTAINERS,
    HEAD,
    RAY_LOGS,
    WORKER,
    cluster_of,
    identity,
    live_head,
    live_pods,
    no_pod,
    place_of,
)
from rljob.render.names import submission_id

if TYPE_CHECKING:
    from rljob.core.observed import Manifest

DRIVER = "driver"
ROLES = (DRIVER, HEAD, WORKER)
KEPT = {DRIVER: "driver.log", HEAD: "*.out *.err", WORKER: "workers/*"}
"""Files below an attempt's folder on the volume, as patterns (runtime: mirror.py)."""
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
    from rljob.cli.accelerators import accelerator_table  # noqa: PLC0415 - loads the API types
    from rljob.cli.frozen import frozen_snapshot, snapshot_name  # noqa: PLC0415 - as above
    from rljob.cli.report.fetch import opened  # noqa: PLC0415 - as above

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
