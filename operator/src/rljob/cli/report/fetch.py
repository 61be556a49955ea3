"""Read a run's records in the cluster: in its head pod while that runs, otherwise in a pod created with its volumes.

The records that outlive a run are on the volume of `observability.logPath`, which only pods can read. The created pod
has the job's image and that volume, read-only, and a deadline; it is deleted at once and owned by the RLJob. It is
created with the rights of the user who runs the command, who may have more than the job's author. Therefore it has
nothing else of the job: no other volume, no folder of a node, no network of a node, no account and no token.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any

from rljob.api.pods import PodTemplate
from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.records import Record, read_records
from rljob.core.observed import Manifest
from rljob.render import labels, pods
from rljob.render.metadata import owner_reference
from rljob.render.names import JobIdentity
from rljob.render.security import ContainerSecurity, PodSecurity
from rljob_runtime.contract import SpoolFile, head_paths

HEAD_CONTAINER = "ray-head"
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
    metadata = job["metadata"]
    identity = JobIdentity(metadata["namespace"], metadata["name"], metadata["uid"])
    own = kubectl.Place(identity.namespace, place.context, place.kubeconfig, place.program)
    head, logs = newest_head(kubectl.find_pods(head_selector(identity), own), identity), spec.observability.log_path
    if head is not None:
        folder, between = record_folders(identity, spec)
        return _read(head, HEAD_CONTAINER, (folder, between), own), f"{folder} of pod {head}"
    if logs is None:
        raise UsageError(
            f"{identity.name} has no pod any more and has kept no records; set observability.logPath for the "
            "next run, or pass --prometheus URL"
        )
    with _reader(identity, spec, own) as name:
        return _read(name, READER, (logs, f"{identity.prefix}-*/"), own), f"{logs} on the job's volume"


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


def record_folders(job: JobIdentity, spec: RLJobSpec) -> tuple[str, str]:
    """Return the folder with the records of all attempts in a head pod, and the pattern of the folders between."""
    logs = spec.observability.log_path
    return (logs, f"{job.prefix}-*/") if logs is not None else (head_paths().spool, "")


def head_selector(job: JobIdentity) -> str:
    """Return the labels of the job's head pods."""
    return f"{labels.JOB_UID}={job.uid},{labels.RAY_NODE_TYPE}=head"


def newest_head(pods: Iterable[Manifest], job: JobIdentity) -> str | None:
    """Return the running head pod; the newest one if an old one still exists."""
    running = [pod["metadata"] for pod in pods if is_running(pod) and is_of_cluster(pod, job)]
    return max(running, key=lambda metadata: str(metadata["creationTimestamp"]))["name"] if running else None


def is_running(pod: Manifest) -> bool:
    """Report whether commands can run in the pod, and will for a while."""
    return (pod.get("status") or {}).get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]


def is_of_cluster(pod: Manifest, job: JobIdentity) -> bool:
    """Report whether a RayCluster of the job controls the pod; anybody could give a pod the job's labels."""
    return any(
        owner.get("controller") and owner["kind"] == "RayCluster" and owner["name"].rpartition("-")[0] == job.prefix
        for owner in pod["metadata"].get("ownerReferences") or ()
    )


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


def _read(pod: str, container: str, words: tuple[str, str], place: kubectl.Place) -> list[Record]:
    command = ["exec", pod, "--container", container, "--", "sh", "-c", LIST_RECORDS, *words]
    return parse_listing(kubectl.run(command, place, seconds=READ_SECONDS))
