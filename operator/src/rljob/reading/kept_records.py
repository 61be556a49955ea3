"""Where the step records of a run are: in its head pod while that runs, otherwise on the volume of its logs.

The records that outlive a run are on the volume of `observability.logPath`, which only pods can read. The pod for that
has the job's image and that volume, read-only, and a deadline; it is owned by the RLJob, and its creator deletes it at
once. It is created with the rights of the caller, who may have more than the job's author. Therefore it has nothing
else of the job: no other volume, no folder of a node, no network of a node, no account and no token.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any

from rljob.api.pods import PodTemplate
from rljob.api.v1alpha1 import RLJobSpec
from rljob.reading import UnreadableError
from rljob.reading.records import Record, read_records
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
    template = spec.trainer_group.template
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
    """Return the volume with the records, and its mount. Raise UnreadableError if no pod should mount it."""
    templates, logs = (
        (spec.trainer_group.template, spec.head.template),
        PurePosixPath(spec.observability.log_path or ""),
    )
    mounts = [mount for mount in pods.user_mounts(*templates) if logs.is_relative_to(mount["mountPath"])]
    mount = max(mounts, key=lambda mount: len(PurePosixPath(mount["mountPath"]).parts), default={"name": ""})
    volume = next((volume for volume in pods.user_volumes(*templates) if volume["name"] == mount["name"]), {})
    if not SOURCES & volume.keys():
        raise UnreadableError(
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
