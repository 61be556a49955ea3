"""Variables with which a container takes devices of its node, or folders, without requesting them.

The device plug-in sets the first one; a value of the pod replaces it, so the container would get NPUs of other jobs.
The policies of the cluster refuse the same names (charts/rljob-operator/templates/_limits.tpl). Called by `validate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.mounts import patched_containers
from rljob.core.validation.violation import Check, Violation

TAKEN = frozenset({
    "ASCEND_VISIBLE_DEVICES", "ASCEND_RUNTIME_OPTIONS", "ASCEND_RUNTIME_MOUNTS", "ASCEND_VNPU_SPECS",
    "ASCEND_ALLOW_LINK",
})  # fmt: skip
"""MindCluster 26.1, Ascend Docker Runtime, "Usage on the Containerd client", table 1."""


def _devices_are_given(spec: RLJobSpec) -> Iterator[Violation]:
    for field, name in _variables(spec):
        if name in TAKEN:
            yield Violation(field, f"{name} is set by the device plug-in when the pod gets its devices; remove it")


def _variables(spec: RLJobSpec) -> Iterator[tuple[str, str]]:
    for path, variable in fields.variables(spec):
        yield path, variable.name
    for path, container in (*fields.containers(spec), *patched_containers(spec)):
        env = container.get("env")
        for index, entry in enumerate(env if isinstance(env, list) else ()):
            if isinstance(entry, Mapping) and isinstance(name := entry.get("name"), str):
                yield f"{path}.env[{index}]", name
    for index, reference in enumerate(spec.secret_refs):
        for number, item in enumerate(reference.items):
            yield f"spec.secretRefs[{index}].items[{number}].env", item.env


CHECKS: tuple[Check, ...] = (_devices_are_given,)
