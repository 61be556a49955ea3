"""Reading RLJobs from files: YAML or JSON, any number of documents, other kinds passed over."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from rljob.api.v1alpha1 import API_VERSION
from rljob.cli.errors import UsageError

STDIN = "-"


@dataclass(frozen=True)
class JobManifest:
    """One RLJob as written."""

    source: str
    namespace: str
    name: str
    spec: Mapping[str, Any]


def read_jobs(source: str) -> list[JobManifest]:
    """Give the RLJobs of a file, or of standard input for `-`."""
    try:
        text = sys.stdin.read() if source == STDIN else Path(source).read_text()
        documents = [document for document in yaml.safe_load_all(text) if document is not None]
    except OSError as error:
        raise UsageError(f"{source}: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: not YAML: {error}") from error
    jobs = [_job(source, document) for document in documents if _kind(document) == "RLJob"]
    if not jobs:
        kinds = ", ".join(sorted({_kind(document) or "something without kind" for document in documents})) or "nothing"
        raise UsageError(f"{source}: holds no RLJob; found {kinds}")
    return jobs


def _kind(document: object) -> str:
    return str(document.get("kind", "")) if isinstance(document, Mapping) else ""


def _job(source: str, document: Mapping[str, Any]) -> JobManifest:
    if (version := document.get("apiVersion")) != API_VERSION:
        raise UsageError(f"{source}: RLJob of apiVersion {version!r}; this version reads {API_VERSION}")
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    if not isinstance(metadata, Mapping) or not isinstance(spec, Mapping):
        raise UsageError(f"{source}: metadata and spec of an RLJob are mappings")
    return JobManifest(source, str(metadata.get("namespace", "default")), str(metadata.get("name", "")), spec)
