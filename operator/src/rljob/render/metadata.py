"""Metadata of every child object: owner, labels and the intent that created it."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from rljob.api.v1alpha1 import API_VERSION
from rljob.render import labels
from rljob.render.names import JobIdentity


def owner_reference(job: JobIdentity) -> dict[str, Any]:
    """Return the reference to the RLJob as controller. Deleting the children does not block its deletion."""
    return {
        "apiVersion": API_VERSION,
        "kind": "RLJob",
        "name": job.name,
        "uid": job.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def job_labels(job: JobIdentity) -> dict[str, str]:
    """Return the labels of every child and every pod."""
    return {labels.JOB: job.name, labels.JOB_UID: job.uid}


def child_metadata(job: JobIdentity, name: str, intent: str, marks: dict[str, str] | None = None) -> dict[str, Any]:
    """Return the metadata of a child object."""
    return {
        "name": name,
        "namespace": job.namespace,
        "labels": job_labels(job) | (marks or {}),
        "annotations": {labels.INTENT: f"{job.uid}/{intent}", labels.RENDERER: labels.RENDERER_VERSION},
        "ownerReferences": [owner_reference(job)],
    }


def canonical_json(value: object) -> str:
    """Serialize a value so that equal values have equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: object) -> str:
    """Return SHA-256 of the canonical text, in hex."""
    return hashlib.sha256(canonical_json(value).encode()).hexdigest()
