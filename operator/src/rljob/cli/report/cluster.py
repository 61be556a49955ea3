"""Gather a report's run from the cluster: RLJob and snapshot through kubectl, records from pods, folder or Prometheus.

The RLJob may be deleted already. Records of a folder or of Prometheus are then shown without attempts and
configuration.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as dataclass_field
from pathlib import Path
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.frozen import frozen_snapshot
from rljob.cli.report import prometheus
from rljob.cli.report.fetch import fetch
from rljob.cli.report.local import ATTEMPT, read_folder
from rljob.cli.report.run import (
    Attempt,
    Found,
    ReportRun,
    Setting,
    Wanted,
    recorded_attempts,
    seconds_of,
    status_attempts,
    status_evaluations,
    status_waits,
    step_seconds,
)
from rljob.core.launcher import LauncherOf
from rljob.core.observed import Manifest
from rljob.core.spec.merge import layer, leaves, path_text
from rljob.core.validation.validate import check
from rljob.reading import figures
from rljob.reading.frozen import snapshot_name
from rljob.reading.records import Record, kept
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.configmap import Snapshot, spec_document
from rljob.render.names import UID_CHARACTERS, JobIdentity

CLUSTER = re.compile(rf"((.+)-[0-9a-f]{{{UID_CHARACTERS}}})-\d+")
"""Format of RayCluster names: the prefix of the job's children, the job's name (render/names.py)."""
NOTHING = "-/"
"""Pattern of no folder: RayClusters have other names."""
NO_JOB = (
    "The RLJob no longer exists in the cluster: attempts are derived from the records, and the configuration is "
    "unknown."
)


@dataclass(frozen=True)
class Sources:
    """Where to read the records. Defaults to the cluster's pods."""

    folder: Path | None = None
    prometheus_url: str | None = None
    since: float | None = None
    """Unix time in seconds from which Prometheus is queried if there is no RLJob."""
    wanted: Wanted = dataclass_field(default_factory=Wanted)


def cluster_run(
    name: str,
    place: kubectl.Place,
    sources: Sources,
    launcher: LauncherOf,
    accelerators: AcceleratorTable,
    command: str,
) -> ReportRun:
    """Return the report of one job, for a command. Raise UsageError if nothing of it can be read."""
    now = time.time()
    try:
        job: Manifest | None = kubectl.get_recorded_job(name, place, command)
    except kubectl.NotFoundError:
        if sources.folder is None and sources.prometheus_url is None:
            raise
        job = None
    snapshot, notes = _snapshot(job, place, accelerators) if job is not None else (None, [NO_JOB])
    found = _read(name, job, snapshot, place, sources)
    if job is None and not found.records and not found.samples:
        raise UsageError(
            f"{name} is not in the cluster, and {found.source} contains no record of it; check the name, and the "
            "namespace with -n"
        )
    if not found.records:
        notes.append(f"There are no step records yet ({found.source}).")
    configuration = settings(job.get("spec") or {}, snapshot, launcher, accelerators) if job and snapshot else ()
    return run_of(name, job, configuration, found, notes, now, place.namespace or "default")


def run_of(
    name: str,
    job: Manifest | None,
    configuration: Sequence[Setting],
    found: Found,
    notes: Sequence[str],
    now: float,
    namespace: str = "default",
) -> ReportRun:
    """Combine what was read into a report."""
    records, source = found.records, found.source
    if job is None:
        attempts = recorded_attempts(records)
        begin = attempts[0].begin if attempts else math.nan
        return ReportRun(
            namespace, name, "Unknown", "", source, records, attempts, begin, samples=found.samples, notes=notes
        )
    status, metadata = job.get("status") or {}, job["metadata"]
    resolved = status.get("resolved") or {}
    devices = int(resolved.get("devices") or 0)
    attempts = [_with_steps(attempt, records, devices) for attempt in status_attempts(status, now)]
    # The status lists the last ten attempts.
    listed = {attempt.number for attempt in attempts}
    attempts = [*(a for a in recorded_attempts(records, devices) if a.number not in listed), *attempts]
    usage = status.get("usage") or {}
    running = [attempt for attempt in attempts if math.isnan(attempt.end)]
    return ReportRun(
        namespace=metadata.get("namespace", "default"),
        name=metadata["name"],
        state=str(status.get("state") or "Unknown"),
        message=str(status.get("message") or ""),
        source=source,
        records=records,
        attempts=attempts,
        created=seconds_of(metadata.get("creationTimestamp")),
        waits=status_waits(status, attempts[0].begin if attempts else now),
        devices=devices,
        # The status sums up all attempts that have ended, and lists only some of them.
        held_seconds=float(usage.get("deviceSeconds", 0)) + math.fsum(a.held_seconds for a in running),
        productive_seconds=float(usage.get("productiveDeviceSeconds", 0))
        + math.fsum(a.productive_seconds for a in running if math.isfinite(a.productive_seconds)),
        device_time=figures.device_time(usage),
        settings=configuration,
        samples=found.samples,
        decisions=[Setting(str(d["name"]), str(d["value"]), str(d["reason"])) for d in resolved.get("decisions") or ()],
        evaluations=status_evaluations(status),
        notes=[*map(str, status.get("notes") or ()), *notes],
    )


def _with_steps(attempt: Attempt, records: Sequence[Record], devices: int) -> Attempt:
    """Derive from the records what the status reports only when an attempt ends."""
    own = [record for record in kept(records) if record.attempt == attempt.number]
    if not own or not math.isnan(attempt.productive_seconds):
        return attempt
    seconds = math.fsum(step_seconds(record) for record in own)
    last = max(attempt.last_step, own[-1].step)
    return replace(attempt, productive_seconds=seconds * devices, last_step=last)


def settings(
    raw_spec: Mapping[str, Any], snapshot: Snapshot, launcher: LauncherOf, accelerators: AcceleratorTable
) -> list[Setting]:
    """Return every field that the run used, who set it, and whether the job has been edited since."""
    checked = check("job", raw_spec, snapshot.recipes, launcher=launcher, accelerators=accelerators)
    sources = {path_text(path): leaf.source for path, leaf in leaves(checked.merged.tree)}
    frozen = _fields(snapshot.spec)
    now = _fields(checked.spec) if checked.spec is not None else frozen
    found = []
    for field, value in frozen.items():
        source = sources.get(field, "")
        if now.get(field) != value:
            source = f"{source or 'job'}, edited since"
        if value != [] or source:
            found.append(Setting(field, _text(value), source))
    return found


def _fields(spec: RLJobSpec) -> dict[str, Any]:
    return {path_text(path): leaf.value for path, leaf in leaves(layer("", spec_document(spec)).tree)}


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _snapshot(job: Manifest, place: kubectl.Place, accelerators: AcceleratorTable) -> tuple[Snapshot | None, list[str]]:
    name = snapshot_name(job)
    if name is None:
        return None, ["The job has not started, so its configuration is not fixed yet."]
    try:
        return frozen_snapshot(job, name, place, accelerators), []
    except UsageError as error:
        return None, [f"The configuration cannot be read: {error}"]


def _read(name: str, job: Manifest | None, snapshot: Snapshot | None, place: kubectl.Place, sources: Sources) -> Found:
    if sources.folder is not None:
        return read_folder(sources.folder, _folders(name, job, sources.folder), sources.wanted)
    if sources.prometheus_url is not None:
        namespace = job["metadata"]["namespace"] if job is not None else place.namespace or "default"
        begin = seconds_of(job["metadata"].get("creationTimestamp")) if job is not None else sources.since
        end = _end(job)
        server = prometheus.Server(sources.prometheus_url)
        target = prometheus.Target(namespace, name, begin, end)
        return Found(prometheus.read_records(server, target), f"{server.url}")
    if job is None or snapshot is None:
        return Found((), "the job has not started")
    return fetch(job, snapshot.spec, place, sources.wanted)


def _end(job: Manifest | None) -> float:
    status = (job or {}).get("status") or {}
    finished = seconds_of(status.get("finishedTime"))
    # The last scrape lags behind.
    return finished + prometheus.LAG_SECONDS if math.isfinite(finished) else time.time()


def _folders(name: str, job: Manifest | None, folder: Path) -> str:
    """Return the pattern of the folders in a log folder: of all jobs on the volume, or of one RayCluster."""
    if not folder.is_dir():
        raise UsageError(f"--records {folder}: no such folder; use the path at which observability.logPath is mounted")
    if any(folder.glob(f"{ATTEMPT}*")):
        return ""
    if job is not None:
        metadata = job["metadata"]
        return f"{JobIdentity(metadata.get('namespace', ''), name, metadata['uid']).clusters}/"
    clusters = (CLUSTER.fullmatch(path.name) for path in sorted(folder.iterdir()))
    prefixes = sorted({found[1] for found in clusters if found and found[2] == name})
    if len(prefixes) > 1:
        raise UsageError(
            f"--records {folder} contains several jobs of this name ({', '.join(prefixes)}), and the cluster "
            "has none of them; use the folder of one RayCluster"
        )
    return f"{prefixes[0]}-[0-9]*/" if prefixes else NOTHING
