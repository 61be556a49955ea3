"""podSpecPatch: a strategic merge patch applied to a rendered pod spec as the last step.

Maps merge deeply. A list of the table merges entry by entry, identified by its key; every other list is replaced. An
entry with `$patch: delete` is removed, since null is rejected everywhere in a manifest. The core decides which fields a
patch may not touch; this module rejects nothing and does not modify the rendered pod in place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api.field_path import member

DIRECTIVE = "$patch"
DELETE = "delete"
SOURCE = "k8s.io/api v0.36.2, core/v1/types.go"
"""Location of `patchMergeKey` and `patchStrategy` of each Go field."""


@dataclass(frozen=True)
class ListRule:
    """How one list of a pod spec is merged."""

    path: tuple[str, ...]
    """Path of the list; fields within an entry follow the list."""
    key: str | None
    """Field that identifies entries; None: the patch's entries are appended."""
    source: str
    """Go field in core/v1, or why this rule differs."""
    retain_keys: bool = False
    """Fields of an entry that the patch does not contain are dropped, because a volume has one source."""


_CONTAINER = (
    ("env", "name", "Container.Env"),
    ("ports", "containerPort", "Container.Ports"),
    ("volumeMounts", "mountPath", "Container.VolumeMounts"),
    ("volumeDevices", "devicePath", "Container.VolumeDevices"),
)
TABLE: tuple[ListRule, ...] = (
    ListRule(("containers",), "name", "PodSpec.Containers"),
    ListRule(("initContainers",), "name", "PodSpec.InitContainers"),
    ListRule(("volumes",), "name", "PodSpec.Volumes", retain_keys=True),
    ListRule(("imagePullSecrets",), "name", "PodSpec.ImagePullSecrets"),
    ListRule(("hostAliases",), "ip", "PodSpec.HostAliases"),
    ListRule(("topologySpreadConstraints",), "topologyKey", "PodSpec.TopologySpreadConstraints"),
    ListRule(("schedulingGates",), "name", "PodSpec.SchedulingGates"),
    ListRule(("resourceClaims",), "name", "PodSpec.ResourceClaims", retain_keys=True),
    *(
        ListRule((containers, field), key, source)
        for containers in ("containers", "initContainers")
        for field, key, source in _CONTAINER
    ),
    # core/v1 replaces the list; here, a patch that tolerates one more taint must not drop those of the template.
    ListRule(("tolerations",), None, "ours: appended"),
)
RULES: Mapping[tuple[str, ...], ListRule] = {rule.path: rule for rule in TABLE}


@dataclass(frozen=True)
class PatchProblem:
    """Why a patch has no meaning."""

    path: str
    """Path within the patch, such as containers[0].env[1]."""
    message: str


def apply_patch(pod_spec: Mapping[str, Any], patch: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the pod spec with the patch applied."""
    return _merge(copy.deepcopy(dict(pod_spec)), patch or {}, ())


def patch_problems(patch: Mapping[str, Any], place: str) -> Iterator[PatchProblem]:
    """Return the parts of a patch that cannot be applied: entries without their key, and unknown directives.

    `place` is the path of the patch, with which the path of each problem begins.
    """
    yield from _problems(patch, (), place)


def _merge(base: Mapping[str, Any], patch: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    """Return the merged map. It shares with `base`, which is a copy already, what the patch does not change."""
    merged = dict(base)
    for name, value in patch.items():
        rule, present = RULES.get((*path, name)), merged.get(name)
        if rule is not None and isinstance(value, list):
            merged[name] = _merge_list(present if isinstance(present, list) else [], value, rule)
        elif isinstance(value, Mapping) and isinstance(present, Mapping):
            merged[name] = _merge(present, value, (*path, name))
        else:
            merged[name] = copy.deepcopy(value)
    return merged


def _merge_list(base: list[Any], patch: list[Any], rule: ListRule) -> list[Any]:
    merged = list(base)
    for entry in patch:
        found = _find(merged, entry, rule.key)
        if isinstance(entry, Mapping) and entry.get(DIRECTIVE) == DELETE:
            merged = [each for index, each in enumerate(merged) if index != found]
        elif found is None:
            merged.append(copy.deepcopy(entry))
        elif rule.key is not None:
            old = merged[found]
            kept = {name: value for name, value in old.items() if name in entry} if rule.retain_keys else old
            merged[found] = _merge(kept, entry, rule.path)
    return merged


def _find(entries: list[Any], wanted: object, key: str | None) -> int | None:
    """Return the index of the matching entry: the one with the same key, or without a key the equal one."""
    return next((index for index, entry in enumerate(entries) if _is_meant(entry, wanted, key)), None)


def _is_meant(entry: object, wanted: object, key: str | None) -> bool:
    if key is None or not isinstance(entry, Mapping) or not isinstance(wanted, Mapping):
        return entry == wanted
    return key in wanted and entry.get(key) == wanted[key]


def _problems(value: object, path: tuple[str, ...], place: str) -> Iterator[PatchProblem]:
    if isinstance(value, Mapping):
        for name, entry in value.items():
            where = member(place, str(name))
            if str(name).startswith("$"):
                yield PatchProblem(
                    where, f"unknown directive; the only one is {DIRECTIVE}: {DELETE}, which removes an entry of a list"
                )
            yield from _problems(entry, (*path, str(name)), where)
    elif isinstance(value, list):
        rule = RULES.get(path)
        for index, entry in enumerate(value):
            yield from _entry_problems(entry, rule, path, f"{place}[{index}]")


def _entry_problems(entry: object, rule: ListRule | None, path: tuple[str, ...], place: str) -> Iterator[PatchProblem]:
    if rule is None or rule.key is None:
        yield from _problems(entry, path, place)
        return
    if not isinstance(entry, Mapping) or rule.key not in entry:
        yield PatchProblem(place, f"needs {rule.key}, which identifies the entry")
        return
    if isinstance(entry[rule.key], list | Mapping):
        yield PatchProblem(f"{place}.{rule.key}", "must be a plain value, because it identifies the entry")
    if entry.get(DIRECTIVE) == DELETE:
        entry = {name: value for name, value in entry.items() if name != DIRECTIVE}
    yield from _problems(entry, path, place)
