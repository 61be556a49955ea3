"""The quickstart's manifests, and variants of its RLJob for tests."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from rljob.api.texts import write_texts

Manifest = dict[str, Any]
PATH = Path(__file__).resolve().parents[2] / "examples" / "quickstart.yaml"


def manifests() -> list[Manifest]:
    """Return all documents of examples/quickstart.yaml."""
    return [document for document in yaml.safe_load_all(PATH.read_text()) if document]


def rljob() -> Manifest:
    """Return the RLJob of the quickstart."""
    return next(document for document in manifests() if document["kind"] == "RLJob")


def surroundings() -> list[Manifest]:
    """Return the other manifests of the quickstart: code and storage."""
    return [document for document in manifests() if document["kind"] != "RLJob"]


def variant(name: str, **fields: Any) -> Manifest:  # noqa: ANN401 - JSON values
    """Return the quickstart's RLJob with another name and with fields set by path: `trainer__steps=3`."""
    return changed(rljob(), name, fields)


def changed(job: Manifest, name: str, fields: Mapping[str, Any]) -> Manifest:
    """Return a copy of a job with another name and with fields set by path; maps become text where the API has text."""
    job = copy.deepcopy(job)
    job["metadata"] = {"name": name}
    for path, value in fields.items():
        *parents, last = path.split("__")
        place = job["spec"]
        for parent in parents:
            place = place[int(parent)] if isinstance(place, list) else place.setdefault(parent, {})
        place[last] = value
    return job | {"spec": write_texts(job["spec"])}


CLAIM = "quickstart"
"""PersistentVolumeClaim of the quickstart."""
MOUNT = "/data"
"""Mount path of the claim."""
BARE: dict[str, Any] = {
    "head": {"template": {}},
    "workerGroups__0__template": {},
    "observability": {},
    "code": {"type": "Image"},
    "initializers": [],
}
"""Fields of a variant whose pods request little and mount no volumes, so that other tests do not affect it."""
WAITING = BARE | {"workerGroups__0__devicesPerNode": 16}
"""The same with more NPUs than the node has: only the head pod runs."""
