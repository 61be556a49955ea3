"""Read a run's records with kubectl: in its head pod, or in a pod that is created for that and deleted again.

Where they are, and what that pod has, is said in `reading.kept_records`.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli import kubectl
from rljob.cli.errors import UsageError, as_usage_error
from rljob.cli.live_pods import live_head, place_of
from rljob.cli.report.run import Found, Wanted
from rljob.core.observed import Manifest
from rljob.reading.job_pods import CONTAINERS, HEAD, identity
from rljob.reading.kept_records import (
    LIST_RECORDS,
    READER,
    READY_SECONDS,
    parse_listing,
    reader_pod,
    record_folders,
)
from rljob.reading.samples import LIST_SAMPLES, READ_SAMPLES, Recorded, files, parse_samples
from rljob.render.names import JobIdentity

READ_SECONDS = 300


def fetch(job: Manifest, spec: RLJobSpec, place: kubectl.Place, wanted: Wanted) -> Found:
    """Return what is wanted of every attempt. Raise UsageError if no pod can read it."""
    with opened(job, spec, place) as found:
        records = parse_listing(_run(found, LIST_RECORDS, found.between)) if wanted.steps else []
        answers: list[Recorded] = []
        if wanted.samples is not None:
            chosen = wanted.samples(files(_run(found, LIST_SAMPLES, found.between).split("\n")))
            if chosen:
                answers = parse_samples(_run(found, READ_SAMPLES, *(each.path for each in chosen)))
    return Found(records, found.source, answers)


def _run(found: Opened, script: str, *words: str) -> str:
    command = ["exec", found.pod, "--container", found.container, "--", "sh", "-c", script, found.folder, *words]
    return kubectl.run(command, found.place, seconds=READ_SECONDS)


@dataclass(frozen=True)
class Opened:
    """A pod in which the records of a job can be read."""

    pod: str
    container: str
    folder: str
    between: str
    """Pattern of the folders between `folder` and those of the attempts."""
    source: str
    """Where the records are, in words."""
    place: kubectl.Place


@contextmanager
def opened(job: Manifest, spec: RLJobSpec, place: kubectl.Place) -> Iterator[Opened]:
    """Yield a pod with the records: the head, or one that is created and deleted again."""
    own, who, logs = place_of(job, place), identity(job), spec.observability.log_path
    kept = f"{who.clusters}/"
    head = live_head(who, own)
    if head is not None:
        name = head["metadata"]["name"]
        folder, between = record_folders(who, spec)
        yield Opened(name, CONTAINERS[HEAD], folder, between, f"{folder} of pod {name}", own)
        return
    if logs is None:
        raise UsageError(
            f"{who.name} has no pod any more and has kept no records; set observability.logPath for the "
            "next run, or pass --prometheus URL"
        )
    with _reader(who, spec, own) as name:
        yield Opened(name, READER, logs, kept, f"{logs} on the job's volume", own)


@contextmanager
def _reader(job: JobIdentity, spec: RLJobSpec, place: kubectl.Place) -> Iterator[str]:
    name = f"{job.prefix}-report-{secrets.token_hex(3)}"
    with as_usage_error():
        manifest = reader_pod(job, spec, name)
    kubectl.create(manifest, place)
    try:
        wait = ["wait", f"pod/{name}", "--for", "condition=Ready", "--timeout", f"{READY_SECONDS}s"]
        try:
            kubectl.run(wait, place, seconds=READY_SECONDS + 20)
        except UsageError as error:
            raise UsageError(
                f"pod {name}, which reads the records, does not run: {error}; check `kubectl describe rljob "
                f"{job.name}` and the state of the volume, or pass a folder where it is mounted with --records"
            ) from error
        yield name
    finally:
        kubectl.run(["delete", "pod", name, "--ignore-not-found", "--wait=false"], place)
