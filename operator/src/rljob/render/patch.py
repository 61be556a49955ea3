"""podSpecPatch: a strategic merge patch laid over a rendered pod spec, the last thing that happens to it.

Maps merge deeply. A list of the table merges entry by entry, told apart by its key; every other list is replaced. An
entry with `$patch: delete` is taken out, since null is refused everywhere in a manifest. Which fields a patch may not
touch is the core's to say; here nothing is refused, and nothing of the rendered pod is changed in place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

DIRECTIVE = "$patch"
DELETE = "delete"
SOURCE = "k8s.io/api v0.36.2, core/v1/types.go"
"""Where `patchMergeKey` and `patchStrategy` of each Go field stand."""


@dataclass(frozen=True)
class ListRule:
    """How one list of a pod spec is merged."""

    path: tuple[str, ...]
    """Fields that lead to it; what stands inside a list's entry follows the list."""
    key: str | None
    """Field that tells entries apart; None: the patch's entries are appended."""
    source: str
    """Go field in core/v1, or why we depart from it."""
    retain_keys: bool = False
    """Fields of an entry that the patch does not name are dropped: a volume has one source."""


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
    # In core/v1 the list is replaced; a patch that tolerates one more taint must not lose those of the template.
    ListRule(("tolerations",), None, "ours: appended"),
)
RULES: Mapping[tuple[str, ...], ListRule] = {rule.path: rule for rule in TABLE}


@dataclass(frozen=True)
class PatchProblem:
    """Why a patch cannot mean anything."""

    path: str
    """Within the patch, such as containers[0].env[1]."""
    message: str


def apply_patch(pod_spec: Mapping[str, Any], patch: Mapping[str, Any] | None) -> dict[str, Any]:
    """Give the pod spec with the patch laid over it."""
    return _merge(pod_spec, patch or {}, ())


def patch_problems(patch: Mapping[str, Any]) -> Iterator[PatchProblem]:
    """Say what of a patch would be laid over nothing: entries without their key, directives that are not known."""
    yield from _problems(patch, (), "")


def _merge(base: Mapping[str, Any], patch: Mapping[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    merged = copy.deepcopy(dict(base))
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
    merged = copy.deepcopy(base)
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
    """Give the place of the entry that is meant: the one of the same key, or without a key the same one."""
    return next((index for index, entry in enumerate(entries) if _is_meant(entry, wanted, key)), None)


def _is_meant(entry: object, wanted: object, key: str | None) -> bool:
    if key is None or not isinstance(entry, Mapping) or not isinstance(wanted, Mapping):
        return entry == wanted
    return key in wanted and entry.get(key) == wanted[key]


def _problems(value: object, path: tuple[str, ...], place: str) -> Iterator[PatchProblem]:
    if isinstance(value, Mapping):
        for name, member in value.items():
            where = f"{place}.{name}" if place else str(name)
            if str(name).startswith("$"):
                yield PatchProblem(where, f"no directive is known here; {DIRECTIVE}: {DELETE} takes out a list's entry")
            yield from _problems(member, (*path, str(name)), where)
    elif isinstance(value, list):
        rule = RULES.get(path)
        for index, entry in enumerate(value):
            yield from _entry_problems(entry, rule, path, f"{place}[{index}]")


def _entry_problems(entry: object, rule: ListRule | None, path: tuple[str, ...], place: str) -> Iterator[PatchProblem]:
    if rule is None or rule.key is None:
        yield from _problems(entry, path, place)
        return
    if not isinstance(entry, Mapping) or rule.key not in entry:
        yield PatchProblem(place, f"needs {rule.key}, which says which entry is meant")
        return
    if isinstance(entry[rule.key], list | Mapping):
        yield PatchProblem(f"{place}.{rule.key}", "must be a plain value: it says which entry is meant")
    if entry.get(DIRECTIVE) == DELETE:
        entry = {name: value for name, value in entry.items() if name != DIRECTIVE}
    yield from _problems(entry, path, place)
