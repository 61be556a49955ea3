"""Read a run's records in the cluster: in its head pod while that runs, otherwise in a pod created with its volumes.

The records that outlive a run are on the volume of `observability.logPath`, which only pods can read. The created pod
has the job's image and that volume, read-only, and a deadline; it is deleted at once and owned by the RLJob. It is
created with the rights of the user who runs the command, who may have more than the job's author. Therefore it has
nothing else of the job: no other volume, no folder of a node, no network of a node, no account and no token.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from rljob.api.pods import PodTemplate
from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.job_pods import CONTAINERS, HEAD, identity, live_head, place_of
from rljob.cli.records import Record, read_records
from rljob.core.observed import Manifest
from rljob.render import pods
from rljob.render.metadata import owner_reference
from rljob.render.names import JobIdentity
from rljob.render.security import ContainerSecurity, PodSecurity
from rljob_runtime.contract import SpoolFile, head_paths

READER = "reader"
SOURCES = frozenset({"persistentVolumeClaim", "nfs"})
"""Volumes that outlive a job. A folder of a node would be read with the rights of the user who runs the command."""
IDENTITY = ("securityContext", "imagePullSecrets", "priorityClassName")
"""What the pod takes of the identity of the job's pods; it has no service account."""
READY_SECONDS = 120
READ_SECONDS = 300
POD_SECONDS = 600
"""The pod ends by itself after this time, in case this program cannot delete it."""
SEPARATOR = "==> attempt "
ATTEMPT = re.compile(r"[0-9]{1,9}")
"""Number of an attempt; a record could contain the separator."""
LIST_RECORDS = (
    'cd "$0" 2>/dev/null || exit 0; for f in $1attempt-*/'
    f"{SpoolFile.STEPS.value}"
    '; do if [ -f "$f" ]; then n="${f%/*}"; echo; echo "'
    f"{SEPARATOR}"
    '${n##*attempt-}"; cat "$f"; fi; done'
)
"""Prints the step records of every attempt below the folder $0; $1 is a pattern of the folders between."""


def fetch_records(job: Manifest, spec: RLJobSpec, place: kubectl.Place) -> tuple[list[Record], str]:
    """Return the records of every attempt and their source. Raise UsageError if no pod can read them."""
    with opened(job, spec, place) as found:
        command = ["exec", found.pod, "--container", found.container, "--", "sh", "-c", LIST_RECORDS, found.folder]
        text = kubectl.run([*command, found.between], found.place, seconds=READ_SECONDS)
    return parse_listing(text), found.source


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


def record_folders(job: JobIdentity, spec: RLJobSpec) -> tuple[str, str]:
    """Return the folder with the records of all attempts in a head pod, and the pattern of the folders between."""
    logs = spec.observability.log_path
    return (logs, f"{job.clusters}/") if logs is not None else (head_paths().spool, "")


def parse_listing(text: str) -> list[Record]:
    """Parse the pod's output."""
    records: list[Record] = []
    for part in f"\n{text}".split(f"\n{SEPARATOR}")[1:]:
        number, _, lines = part.partition("\n")
        if ATTEMPT.fullmatch(number):
            records += read_records(lines, int(number))
    return records


def reader_pod(job: JobIdentity, spec: RLJobSpec, name: str) -> dict[str, Any]:
    """Return the pod. It sleeps and is read by exec, because container logs are truncated after some megabytes."""
    template = spec.worker_groups[0].template
    volume, mount = _log_volume(spec)
    mounts = [mount]
    owner = {**owner_reference(job), "controller": False, "blockOwnerDeletion": False}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        # Without the job's labels, since the operator and the job's policies select pods by them.
        "metadata": {"name": name, "namespace": job.namespace, "ownerReferences": [owner]},
        "spec": {
            "restartPolicy": "Never",
            "activeDeadlineSeconds": POD_SECONDS,
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "nodeSelector": dict(template.node_selector),
            "tolerations": [t.model_dump(by_alias=True, exclude_none=True) for t in template.tolerations],
            **{name: value for name, value in pods.identity(spec, template).items() if name in IDENTITY},
            "volumes": [volume],
            "containers": [
                {
                    "name": READER,
                    "image": spec.runtime.image,
                    "imagePullPolicy": spec.runtime.image_pull_policy,
                    "command": ["sleep", str(POD_SECONDS)],
                    "resources": pods.resources("10m", "64Mi") | {"limits": {"cpu": "1", "memory": "64Mi"}},
                    **_security(spec, template),
                    "volumeMounts": [{**mount, "readOnly": True} for mount in mounts],
                }
            ],
        },
    }


def _log_volume(spec: RLJobSpec) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the volume with the records, and its mount. Raise UsageError if no pod should mount it."""
    templates, logs = (
        (spec.worker_groups[0].template, spec.head.template),
        PurePosixPath(spec.observability.log_path or ""),
    )
    mounts = [mount for mount in pods.user_mounts(*templates) if logs.is_relative_to(mount["mountPath"])]
    mount = max(mounts, key=lambda mount: len(PurePosixPath(mount["mountPath"]).parts), default={"name": ""})
    volume = next((volume for volume in pods.user_volumes(*templates) if volume["name"] == mount["name"]), {})
    if not SOURCES & volume.keys():
        raise UsageError(
            f"observability.logPath {logs} is not on a {' or '.join(sorted(SOURCES))} volume of the job, and "
            "`rljob report` creates no pod with a volume of another kind; pass a folder where it is mounted with "
            "--records, or --prometheus URL"
        )
    return volume, mount


def _security(spec: RLJobSpec, template: PodTemplate) -> dict[str, Any]:
    """Return the security context: a class of another table than this program's says nothing about its images."""
    if spec.accelerator.class_ in spec.accelerator.table:
        return PodSecurity.of(spec, template).user_image_with_own_program()
    return {"securityContext": ContainerSecurity(non_root=False).manifest()}


@contextmanager
def _reader(job: JobIdentity, spec: RLJobSpec, place: kubectl.Place) -> Iterator[str]:
    name = f"{job.prefix}-report-{secrets.token_hex(3)}"
    kubectl.create(reader_pod(job, spec, name), place)
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
