"""Which fields of an RLJob have an effect without Kubernetes, and what is reported for those that have none. Pure.

The longest matching prefix of a field's path decides. A test walks the whole schema, so that no field is ignored
silently.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

USED = None
NO_PODS = "a local run has no pods"
NOT_ENFORCED = "not enforced in a local run"
NO_QUEUE = "a local run has no queue"
NO_CONTAINERS = "containers do not run locally; do their work beforehand, or in an initializer"

TREATMENT: Mapping[str, str | None] = {
    "recipeRef": USED,
    "unset": USED,
    "managedBy": "nothing manages a local run",
    "suspend": "you start and stop a local run yourself",
    "runtime": "no image runs locally; the packages of this Python are used",
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
    "services": "containers do not run locally; start the service yourself, on its port of this machine, also a Shared "
    "one",
    "code": USED,
    "initializers": USED,
    "initializers[].image": "no image runs locally; the packages of this Python are used",
    "initializers[].cpu": NOT_ENFORCED,
    "initializers[].memory": NOT_ENFORCED,
    "secretRefs": USED,
    "launcher": USED,
    "model": USED,
    "data": USED,
    "reward": USED,
    "algorithm": USED,
    "critic": USED,
    "trainer": USED,
    "rollout": USED,
    "optimizations": USED,
    "network": "all processes communicate over 127.0.0.1",
    "checkpoint": USED,
    "export": "nothing is exported from a local run; convert its checkpoint with `python -m verl.model_merger merge`",
    "evaluation": "checkpoints of a local run are not evaluated by jobs of their own; use trainer.evaluateEverySteps",
    "restart": "a local run is not restarted; run the same command again to resume from the last checkpoint",
    "stopRules": USED,
    "deadlines": USED,
    "stop": USED,
    "stop.requireCheckpoint": "a local run has no RLJob whose deletion could wait",
    "cleanup": "only the folder outlives a local run",
    "observability": USED,
    "verl": USED,
}


def treatment(path: str) -> str | None:
    """Return the note on a field such as `workerGroups[].template.cpu`; None if the field is used.

    Raise KeyError if the field is unknown.
    """
    prefix = path
    while prefix:
        for name in (prefix, prefix.removesuffix("[]")):
            if name in TREATMENT:
                return TREATMENT[name]
        prefix = prefix.rpartition(".")[0]
    raise KeyError(path)


def without_effect(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return note -> fields, for the fields that recipe and job set to something other than the default."""
    paths: dict[str, list[str]] = {}
    for path in _written(document, ""):
        if (said := treatment(_plain(path))) is not None:
            paths.setdefault(said, []).append(path)
    return paths


def _written(value: object, path: str) -> Iterator[str]:
    """Walk to the deepest fields that the table has an entry for."""
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
    return re.sub(r"\[[^][]*]", "[]", path)
