"""Variables and annotations with which a pod chooses devices of its node, or folders, itself.

The device plug-in and Ascend's scheduler set them; a value of the pod takes their place, so that it would get NPUs of
other jobs. The policies of the cluster refuse the same names (charts/rljob-operator/templates/_limits.tpl). Called by
`validate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rljob.api.field_path import bracketed
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.mounts import containers
from rljob.core.validation.violation import Check, Violation

TAKEN = frozenset({
    "ASCEND_VISIBLE_DEVICES", "ASCEND_RUNTIME_OPTIONS", "ASCEND_RUNTIME_MOUNTS", "ASCEND_VNPU_SPECS",
    "ASCEND_ALLOW_LINK",
})  # fmt: skip
"""MindCluster 26.1, Ascend Docker Runtime, "Usage on the Containerd client", table 1."""


CHOSEN = frozenset({"huawei.com/npu", "huawei.com/AscendReal", "huawei.com/kltDev", "predicate-time"})
"""Annotations, besides one that is named like the resource: for a part of a node's devices, the plug-in takes those
that the annotation names, of the pod with the oldest time (MindCluster 26.1, component/ascend-device-plugin/pkg/server/
plugin.go, getOldestPod).
"""


def _devices_are_given(spec: RLJobSpec) -> Iterator[Violation]:
    for field, name in _variables(spec):
        if name in TAKEN:
            yield Violation(field, f"{name} is set by the device plug-in when the pod gets its devices; remove it")


def _devices_are_not_chosen(spec: RLJobSpec) -> Iterator[Violation]:
    resources = {row.resource for row in (spec.accelerator.table or {}).values()}
    for path, template in fields.templates(spec):
        for name in template.annotations:
            if name in CHOSEN | resources:
                yield Violation(
                    f"{path}.annotations{bracketed(name)}",
                    "is set by the scheduler or the device plug-in when the pod gets its devices; remove it",
                )


def _variables(spec: RLJobSpec) -> Iterator[tuple[str, str]]:
    for path, variable in fields.variables(spec):
        yield path, variable.name
    for path, container in containers(spec):
        env = container.get("env")
        for index, entry in enumerate(env if isinstance(env, list) else ()):
            if isinstance(entry, Mapping) and isinstance(name := entry.get("name"), str):
                yield f"{path}.env[{index}]", name
    for index, reference in enumerate(spec.secret_refs):
        for number, item in enumerate(reference.items):
            yield f"spec.secretRefs[{index}].items[{number}].env", item.env


CHECKS: tuple[Check, ...] = (_devices_are_given, _devices_are_not_chosen)
