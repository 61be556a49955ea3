"""Which fields of an RLJob mean something without Kubernetes, and what is said of those that do not. Pure.

The longest prefix of a field's path decides; a test walks the whole schema, so that no field is dropped in silence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

USED = None
NO_PODS = "there are no pods here"
NOT_ENFORCED = "not enforced here"
NO_QUEUE = "there is no queue here"
NO_CONTAINERS = "containers do not run here; do beforehand, or in an initializer, what it does"

TREATMENT: Mapping[str, str | None] = {
    "recipeRef": USED,
    "unset": USED,
    "managedBy": "nobody manages a local run",
    "suspend": "you start and stop a local run yourself",
    "runtime": "no image runs here: the packages of this Python are used",
    "scheduling": NO_QUEUE,
    "accelerator": USED,
    "head.template": NO_PODS,
    "head.template.cpu": NOT_ENFORCED,
    "head.template.memory": NOT_ENFORCED,
    "head.template.sharedMemory": NOT_ENFORCED,
    "head.template.env": USED,
    "head.template.envFrom": USED,
    "head.template.volumes": USED,
    "head.template.volumeMounts": USED,
    "head.template.initContainers": NO_CONTAINERS,
    "head.template.sidecars": NO_CONTAINERS,
    "workerGroups": USED,
    "workerGroups[].template": NO_PODS,
    "workerGroups[].template.cpu": NOT_ENFORCED,
    "workerGroups[].template.memory": NOT_ENFORCED,
    "workerGroups[].template.sharedMemory": NOT_ENFORCED,
    "workerGroups[].template.env": USED,
    "workerGroups[].template.envFrom": USED,
    "workerGroups[].template.volumes": USED,
    "workerGroups[].template.volumeMounts": USED,
    "workerGroups[].template.initContainers": NO_CONTAINERS,
    "workerGroups[].template.sidecars": NO_CONTAINERS,
    "podSpecPatch": NO_PODS,
    "services": "containers do not run here; start the service yourself, at its port of this machine",
    "code": USED,
    "initializers": USED,
    "initializers[].image": "no image runs here: the packages of this Python are used",
    "initializers[].cpu": NOT_ENFORCED,
    "initializers[].memory": NOT_ENFORCED,
    "secretRefs": USED,
    "model": USED,
    "data": USED,
    "reward": USED,
    "algorithm": USED,
    "critic": USED,
    "trainer": USED,
    "rollout": USED,
    "optimizations": USED,
    "network": "all processes talk over 127.0.0.1",
    "checkpoint": USED,
    "restart": "a local run is not restarted; the same command goes on from the last checkpoint",
    "stopRules": USED,
    "deadlines": USED,
    "stop": USED,
    "stop.requireCheckpoint": "there is no RLJob to hold here",
    "cleanup": "nothing but the folder outlives a local run",
    "observability": USED,
    "verl": USED,
}


def treatment(path: str) -> str | None:
    """Give what is said of a field, `workerGroups[].template.cpu`; None where it is used. Raises KeyError."""
    prefix = path
    while prefix:
        for name in (prefix, prefix.removesuffix("[]")):
            if name in TREATMENT:
                return TREATMENT[name]
        prefix = prefix.rpartition(".")[0]
    raise KeyError(path)


def without_effect(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Give what is said -> the fields, of a spec as recipe and job wrote it, defaults left out."""
    told: dict[str, list[str]] = {}
    for path in _written(document, ""):
        if (said := treatment(_plain(path))) is not None:
            told.setdefault(said, []).append(path)
    return told


def _written(value: object, path: str) -> Iterator[str]:
    """Walk to the deepest fields that the table knows something of."""
    plain = _plain(path)
    deeper = not path or any(row.startswith((f"{plain}.", f"{plain}[")) for row in TREATMENT)
    if isinstance(value, Mapping) and deeper:
        for name, member in value.items():
            yield from _written(member, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and deeper:
        for index, member in enumerate(value):
            name = member.get("name", index) if isinstance(member, Mapping) else index
            yield from _written(member, f"{path}[{name}]")
    elif path and value not in ({}, [], False, None):
        yield path


def _plain(path: str) -> str:
    """`workerGroups[trainer].nodes` -> `workerGroups[].nodes`."""
    return re.sub(r"\[[^]]*]", "[]", path)
