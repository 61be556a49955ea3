"""podSpecPatch: the escape hatch, and the fields that it may not change, in a table with the reason for each.

Paths are those of core/v1 PodSpec. `containers[]` means the operator's own containers, in which a patch may change
whatever the table does not list. `render.patch` implements the merge and reports patches that do not merge.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from rljob.api.field_path import member
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.pods import OUR_PREFIX, RESERVED_VOLUMES, is_injected_path, normal, variable_problem
from rljob.core.validation.violation import Check, Violation
from rljob.render.accelerators import facts_of
from rljob.render.patch import patch_problems
from rljob_runtime.contract import head_paths

OUR_CONTAINERS = {"head": ("ray-head", "exporter"), "workers": ("ray-worker",)}
"""Containers that a patch may name."""


@dataclass(frozen=True)
class Refused:
    """A field that no patch may change."""

    field: str
    why: str


POD = (
    Refused("restartPolicy", "a restarted Ray process has lost its state, so pods are replaced"),
    Refused("hostNetwork", "use spec.network.mode: Host"),
    Refused("nodeName", "it bypasses scheduler, queue and gang; use template.nodeSelector or template.affinity"),
    Refused("nodeSelector", "use template.nodeSelector"),
    Refused("affinity", "use template.affinity"),
    Refused("initContainers", "use template.initContainers"),
    Refused("imagePullSecrets", "use spec.runtime.imagePullSecrets"),
    Refused("serviceAccount", "use spec.runtime.serviceAccountName"),
    Refused("serviceAccountName", "use spec.runtime.serviceAccountName"),
    Refused("automountServiceAccountToken", "the pods run user code and must not get a token for the API server"),
    Refused("runtimeClassName", "use spec.runtime.runtimeClassName"),
    Refused("priorityClassName", "use spec.scheduling.priorityClassName"),
    Refused("activeDeadlineSeconds", "use spec.deadlines.activeSeconds"),
    Refused("terminationGracePeriodSeconds", "it follows from spec.stop.graceSeconds"),
    Refused("ephemeralContainers", "they can only be added to running pods, with `kubectl debug`"),
)
"""Fields of the pod."""
CONTAINER = (
    Refused("$patch", "no pod works without it"),
    Refused("command", "KubeRay sets it"),
    Refused("args", "KubeRay sets it"),
    Refused("image", "use spec.runtime.image"),
    Refused("imagePullPolicy", "use spec.runtime.imagePullPolicy"),
    Refused("lifecycle", "the operator stops the run through it"),
    Refused("envFrom", "use template.envFrom"),
    Refused("livenessProbe", "a killed Ray process would end the run; spec.deadlines.progressSeconds finds a stall"),
    Refused("restartPolicy", "a restarted Ray process has lost its state, so pods are replaced"),
)
"""Fields of the operator's own containers."""


def _patches_leave_promises(spec: RLJobSpec) -> Iterator[Violation]:
    """What the operator or a field of the spec sets cannot be set again."""
    for name, patch in (("head", spec.pod_spec_patch.head), ("workers", spec.pod_spec_patch.workers)):
        if patch is None:
            continue
        field = f"spec.podSpecPatch.{name}"
        yield from (Violation(problem.path, problem.message) for problem in patch_problems(patch, field))
        for row in POD:
            if row.field in patch:
                yield Violation(f"{field}.{row.field}", f"cannot be patched: {row.why}")
        yield from _volumes(f"{field}.volumes", patch.get("volumes"))
        yield from _containers(spec, name, f"{field}.containers", patch.get("containers"))


def _volumes(field: str, value: object) -> Iterator[Violation]:
    for index, volume in _entries(value):
        name = volume.get("name")
        if str(name) in RESERVED_VOLUMES or str(name).startswith(OUR_PREFIX):
            yield Violation(f"{field}[{index}].name", f"{name} belongs to the operator and cannot be patched")
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
        for row in CONTAINER:
            if row.field in container:
                yield Violation(f"{place}.{row.field}", f"cannot be patched: {row.why}")
        yield from _resources(spec, pod, f"{place}.resources", container.get("resources"))
        yield from _parts(spec, place, container)
    yield from _shape(field, value)


def _resources(spec: RLJobSpec, pod: str, field: str, value: object) -> Iterator[Violation]:
    guaranteed = pod == "workers" and facts_of(spec).is_npu
    owned = {
        facts_of(spec).resource: "use workerGroups[0].devicesPerNode",
        "cpu": "use template.cpu",
        "memory": "use template.memory",
    }
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
