"""podSpecPatch: the escape hatch, for fields of a pod that the spec does not have.

`patch_fields` states what it may set. `render.patch` implements the merge and reports patches that do not merge. What
depends on the spec is here: whose containers, variables, mounts and resources a patch touches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rljob.api.field_path import member
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.patch_fields import (
    CONTAINER,
    POD,
    field_violations,
    resource_violations,
)
from rljob.core.validation.pods import OUR_PREFIX, RESERVED_VOLUMES, is_injected_path, normal, variable_problem
from rljob.core.validation.violation import Check, Violation
from rljob.render.accelerators import facts_of
from rljob.render.patch import DIRECTIVE, patch_problems
from rljob_runtime.contract import head_paths

OUR_CONTAINERS = {"head": ("ray-head", "exporter"), "workers": ("ray-worker",)}
"""Containers that a patch may name."""


def _patches_leave_promises(spec: RLJobSpec) -> Iterator[Violation]:
    """What the operator or a field of the spec sets cannot be set again."""
    for name, patch in (("head", spec.pod_spec_patch.head), ("workers", spec.pod_spec_patch.workers)):
        if patch is None:
            continue
        field = f"spec.podSpecPatch.{name}"
        yield from (Violation(problem.path, problem.message) for problem in patch_problems(patch, field))
        yield from field_violations(patch, POD, field)
        yield from _volumes(f"{field}.volumes", patch.get("volumes"))
        yield from _containers(spec, name, f"{field}.containers", patch.get("containers"))


def _volumes(field: str, value: object) -> Iterator[Violation]:
    for index, volume in _entries(value):
        name = volume.get("name")
        if str(name) in RESERVED_VOLUMES or str(name).startswith(OUR_PREFIX):
            yield Violation(
                f"{field}[{index}].name",
                f"{name} belongs to the operator and cannot be patched; give your volume another name",
            )
    yield from _shape(field, value)


def _containers(spec: RLJobSpec, pod: str, field: str, value: object) -> Iterator[Violation]:
    for index, container in _entries(value):
        place = f"{field}[{index}]"
        if "name" not in container:
            continue  # Reported by patch_problems.
        if container["name"] not in OUR_CONTAINERS[pod]:
            listed = " or ".join(OUR_CONTAINERS[pod])
            yield Violation(
                f"{place}.name",
                f"names none of the operator's containers ({listed}); put others into template.sidecars",
            )
            continue
        yield from field_violations(container, CONTAINER, place)
        yield from _resources(spec, pod, f"{place}.resources", container.get("resources"))
        yield from _parts(spec, place, container)
    yield from _shape(field, value)


def _resources(spec: RLJobSpec, pod: str, field: str, value: object) -> Iterator[Violation]:
    guaranteed = pod == "workers" and facts_of(spec).is_npu
    owned = {
        "cpu": "use template.cpu",
        "memory": "use template.memory",
    }
    yield from resource_violations(value, field)
    for kind in ("requests", "limits"):
        entries = value.get(kind) if isinstance(value, Mapping) else None
        for name, fix in owned.items():
            # There is no field for the CPU limit; it can be patched except where it must equal the request.
            ours = guaranteed or (kind, name) != ("limits", "cpu")
            if ours and isinstance(entries, Mapping) and name in entries:
                yield Violation(member(f"{field}.{kind}", name), f"cannot be patched: {fix}")


def _parts(spec: RLJobSpec, field: str, container: Mapping[str, object]) -> Iterator[Violation]:
    paths = head_paths()
    for index, variable in _entries(container.get("env")):
        if (problem := variable_problem(variable.get("name"), spec)) is not None:
            yield Violation(f"{field}.env[{index}].name", problem)
    for index, mount in _entries(container.get("volumeMounts")):
        place = normal(str(mount.get("mountPath", "")))
        if place in (paths.config_folder, paths.spool) or is_injected_path(place, spec):
            yield Violation(
                f"{field}.volumeMounts[{index}].mountPath",
                f"{mount['mountPath']} is reserved by the operator; use another path",
            )
        if "name" not in mount and DIRECTIVE not in mount:
            # Without one, the entry would change the mount of the operator at this path.
            yield Violation(f"{field}.volumeMounts[{index}].name", "is required and not set")
    for name in ("env", "volumeMounts"):
        yield from _shape(f"{field}.{name}", container.get(name))


def _entries(value: object) -> Iterator[tuple[int, Mapping[str, object]]]:
    for index, entry in enumerate(value if isinstance(value, list) else ()):
        if isinstance(entry, Mapping):
            yield index, entry


def _shape(field: str, value: object) -> Iterator[Violation]:
    """Report a value that is not a list; patch_problems reports what its entries lack."""
    if value is not None and not isinstance(value, list):
        yield Violation(field, "must be a list, as in core/v1")


CHECKS: tuple[Check, ...] = (_patches_leave_promises,)
