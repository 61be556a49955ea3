"""The quickstart's manifests, and variants of its RLJob for tests."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

Manifest = dict[str, Any]
PATH = Path(__file__).resolve().parents[2] / "examples" / "quickstart.yaml"


def manifests() -> list[Manifest]:
    """Give every document of examples/quickstart.yaml."""
    return [document for document in yaml.safe_load_all(PATH.read_text()) if document]


def rljob() -> Manifest:
    """Give the RLJob of the quickstart."""
    return next(document for document in manifests() if document["kind"] == "RLJob")


def surroundings() -> list[Manifest]:
    """Give what stands beside the RLJob: code and storage."""
    return [document for document in manifests() if document["kind"] != "RLJob"]


def variant(name: str, **fields: Any) -> Manifest:  # noqa: ANN401 - JSON values
    """Give the quickstart's RLJob under another name, with fields set by path: `trainer__steps=3`."""
    return changed(rljob(), name, fields)


def changed(job: Manifest, name: str, fields: Mapping[str, Any]) -> Manifest:
    """Return a copy of a job under another name, with fields set by path."""
    job = copy.deepcopy(job)
    job["metadata"] = {"name": name}
    for path, value in fields.items():
        *parents, last = path.split("__")
        place = job["spec"]
        for parent in parents:
            place = place[int(parent)] if isinstance(place, list) else place.setdefault(parent, {})
        place[last] = value
    return job


CLAIM = "quickstart"
"""PersistentVolumeClaim of the quickstart."""
MOUNT = "/data"
"""Where it is mounted."""
BARE: dict[str, Any] = {
    "head": {"template": {}},
    "workerGroups__0__template": {},
    "observability": {},
    "code": {"type": "Image"},
    "initializers": [],
}
"""Fields of a variant whose pods ask for nothing and mount nothing: what other tests still hold must not decide."""
WAITING = BARE | {"workerGroups__0__devicesPerNode": 16}
"""The same, with more NPUs than the node has: the head runs, and nothing trains."""
