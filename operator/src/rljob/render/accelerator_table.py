"""The accelerator table: what the operator knows about each hardware class, as data that administrators may change.

A row describes how a node of the class is requested, found, mounted and sized; `accelerators` has the rows of a
release, each value with its source. The chart writes them to a ConfigMap together with the rows of its value
`accelerators`. The operator merges those over its own copy at startup, and `rljob --accelerators` does the same. The
result is an immutable AcceleratorTable, which wiring passes down; rows are only added, never removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pydantic import ValidationError

from rljob.api.accelerators import AcceleratorFacts, DriverMounts, PodSize
from rljob.api.forms import problem_text
from rljob.api.quantity import quantity
from rljob.render.names import is_label_name, is_label_value

ROWS_MAX = 64
RAY_CPUS_PER_DEVICE_MIN = 3
"""Ray CPUs that the trainer reserves per device (max_colocate_count, verl/single_controller/ray/base.py, 0.9.1)."""
RAY_CPUS_BESIDE = 3
"""Ray CPUs of TransferQueue's two storage units per node and of its controller."""
RESOURCE = r"[a-z0-9]([-a-z0-9.]{0,250}[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
SLICES = r"huawei\.com/(npu-core|Ascend(910|310P)-[0-9]+c.*)"
"""Slices of a device (vNPU), on which collectives do not run (mind-cluster, device plug-in: static and dynamic vNPU).
"""
NOT_IN_ENV = {
    "HCCL_CONNECT_TIMEOUT": "network.hccl.connectTimeoutSeconds of a recipe",
    "HCCL_EXEC_TIMEOUT": "network.hccl.execTimeoutSeconds of a recipe",
    "HCCL_SOCKET_IFNAME": "network.hccl.socketInterface of a recipe",
    "GLOO_SOCKET_IFNAME": "network.hccl.socketInterface of a recipe",
    "TP_SOCKET_IFNAME": "network.hccl.socketInterface of a recipe",
    "ASCEND_VISIBLE_DEVICES": "nothing: the device plug-in sets it",
    "ASCEND_RT_VISIBLE_DEVICES": "nothing: a job has all devices of its nodes",
}
"""Variables that a row must not set, and what to use instead."""
POLICY = r"chip[0-9]+-node(?P<devices>[0-9]+)(-sp|-ra64-sp)?"
"""Format of huawei.com/schedule_policy: chips per module, devices per node, whether within a super-pod."""


@dataclass(frozen=True)
class Problem:
    """A problem of a table: the field and the fix."""

    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"


class TableError(ValueError):
    """A table is invalid."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = problems


OPERATOR_IMAGE = "rljob.local/operator:dev"
"""The image that `make images` builds, and the chart's default."""


class AcceleratorTable(Mapping[str, AcceleratorFacts]):
    """Class -> row, and the operator's image. Immutable; a spec is bound to one when it is parsed."""

    def __init__(self, rows: Mapping[str, AcceleratorFacts], operator_image: str = OPERATOR_IMAGE) -> None:
        self._rows = dict(rows)
        self.operator_image = operator_image
        """Image whose runtime is injected into the pods of jobs with runtime.injection Auto."""

    def with_operator_image(self, image: str) -> AcceleratorTable:
        """Return the same rows with another image."""
        return AcceleratorTable(self._rows, image)

    def __getitem__(self, name: str) -> AcceleratorFacts:
        """Return the row of a class."""
        return self._rows[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the classes."""
        return iter(self._rows)

    def __len__(self) -> int:
        """Return the number of classes."""
        return len(self._rows)


def read_table(*layers: Mapping[str, Any]) -> dict[str, AcceleratorFacts]:
    """Merge tables over each other and parse them. Raise TableError if the result is invalid.

    Maps are merged deeply, except nodeLabels, whose entries belong together; everything else is replaced.
    """
    document: dict[str, Any] = {}
    problems: list[Problem] = []
    for layer in layers:
        for name, row in layer.items():
            if isinstance(row, Mapping):
                document[str(name)] = _overlaid(document.get(str(name), {}), row)
            else:
                problems.append(Problem(f"accelerators.{name}", "must be a map of the row's fields"))
    if len(document) > ROWS_MAX:
        problems.append(Problem("accelerators", f"{len(document)} rows; the maximum is {ROWS_MAX}"))
    rows: dict[str, AcceleratorFacts] = {}
    for name, row in document.items():
        place = f"accelerators.{name}"
        problems += _name_problems(place, name)
        try:
            rows[name] = AcceleratorFacts.model_validate(row)
        except ValidationError as error:
            problems += _type_problems(place, error)
        else:
            problems += _row_problems(place, rows[name])
    if problems:
        raise TableError(tuple(problems))
    return rows


def _overlaid(base: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for name, value in change.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping) and name != "nodeLabels":
            merged[name] = _overlaid(below, value)
        else:
            merged[name] = value
    return merged


def _name_problems(place: str, name: str) -> Iterator[Problem]:
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name):
        yield Problem(
            place, "is not a valid class name; use lower-case letters, digits and '-', starting with a letter"
        )


def _type_problems(place: str, error: ValidationError) -> Iterator[Problem]:
    known = ", ".join(str(info.alias or name) for name, info in AcceleratorFacts.model_fields.items())
    for problem in error.errors(include_url=False):
        field = place + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in problem["loc"])
        match problem["type"]:
            case "missing":
                yield Problem(field, "is required and not set")
            case "extra_forbidden":
                yield Problem(field, f"is not a field of a row; the fields are {known}")
            case _:
                yield Problem(field, f"{problem['input']!r:.100}: {problem_text(problem)}")


def _row_problems(place: str, row: AcceleratorFacts) -> Iterator[Problem]:
    """Return the contradictions within a row."""
    if re.fullmatch(SLICES, row.resource):
        yield Problem(
            f"{place}.resource",
            f"{row.resource} is a slice of a device (vNPU), on which HCCL does not run; use the resource of whole "
            "devices",
        )
    elif not re.fullmatch(RESOURCE, row.resource):
        yield Problem(
            f"{place}.resource",
            f"{row.resource!r} is not an extended resource; use a name such as huawei.com/Ascend910, as shown by "
            "`kubectl describe node`",
        )
    if row.devices_per_node % row.dies_per_card:
        yield Problem(
            f"{place}.diesPerCard",
            f"{row.dies_per_card} does not divide devicesPerNode {row.devices_per_node}; change one of the two",
        )
    yield from _policy_problems(place, row)
    yield from _label_problems(place, row)
    if row.driver_mounts is DriverMounts.RUNTIME_CLASS and row.runtime_class_name is None:
        yield Problem(f"{place}.runtimeClassName", "is required with driverMounts RuntimeClass, such as ascend")
    if row.pod is not None:
        yield from _size_problems(f"{place}.pod", row, row.pod)
    for name in row.env:
        if name in NOT_IN_ENV or name.startswith("RLJOB_"):
            instead = NOT_IN_ENV.get(name, "another name, because the prefix RLJOB_ belongs to the operator")
            yield Problem(f"{place}.env.{name}", f"must not be set for a class; use {instead}")
    known = {info.alias or name for name, info in AcceleratorFacts.model_fields.items()} - {"sources", "description"}
    for name in row.sources:
        if name.partition(".")[0] not in known:
            yield Problem(
                f"{place}.sources.{name}", f"is not a field of a row; the fields are {', '.join(sorted(known))}"
            )


def _label_problems(place: str, row: AcceleratorFacts) -> Iterator[Problem]:
    """Check names and values as the API server does, which otherwise would report them only to KubeRay."""
    names = [("labels", name) for name in row.labels]
    names += [("annotations", name) for name in row.annotations]
    names += [("headAnnotations", name) for name in row.head_annotations]
    names += [("nodeLabels", name) for name in row.node_labels]
    names += [("superPodLabel", name) for name in (row.super_pod_label,) if name is not None]
    names += [("topologyLevels", name) for name in row.topology_levels]
    for field, name in names:
        if not is_label_name(name):
            yield Problem(f"{place}.{field}[{name}]", "is not a valid label name; use one such as example.com/team")
    values = [(f"labels[{name}]", value) for name, value in row.labels.items()]
    values += [(f"nodeLabels[{name}]", value) for name, listed in row.node_labels.items() for value in listed]
    for path, value in values:
        if not is_label_value(value):
            yield Problem(f"{place}.{path}", f"{value!r} is not a valid label value: at most 63 letters, digits, '-_.'")


def _policy_problems(place: str, row: AcceleratorFacts) -> Iterator[Problem]:
    if row.schedule_policy is None:
        return
    found = re.fullmatch(POLICY, row.schedule_policy)
    if found is None:
        yield Problem(
            f"{place}.schedulePolicy",
            f"{row.schedule_policy!r} is not a policy for whole devices; use one such as chip8-node8 or "
            "chip2-node16-sp",
        )
    elif int(found["devices"]) != row.devices_per_node:
        yield Problem(
            f"{place}.schedulePolicy",
            f"{row.schedule_policy} is for nodes of {found['devices']} devices, but devicesPerNode is "
            f"{row.devices_per_node}",
        )


def _size_problems(place: str, row: AcceleratorFacts, size: PodSize) -> Iterator[Problem]:
    cpus = quantity(size.cpu)
    least = RAY_CPUS_PER_DEVICE_MIN * row.devices_per_node + RAY_CPUS_BESIDE
    if not _is_share(cpus, row.devices_per_node) or cpus < least:
        multiple = -(-least // row.devices_per_node) * row.devices_per_node
        yield Problem(
            f"{place}.cpu",
            f"{size.cpu}: each device needs the same number of whole cores, and the trainer reserves {least} of "
            f"Ray; use a multiple of {row.devices_per_node}, at least {multiple}",
        )
    if quantity(size.shared_memory) >= quantity(size.memory):
        yield Problem(
            f"{place}.sharedMemory", f"{size.shared_memory} counts as memory, but memory is {size.memory}; raise memory"
        )


def _is_share(cpus: Fraction, devices: int) -> bool:
    return cpus.denominator == 1 and cpus % devices == 0
