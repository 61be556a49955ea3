"""`rljob plan experts`: from counts of tokens to the expert map of a vllm-ascend server, as a file and its figures.

For servers outside of RLJob, such as an evaluation or a service with the trained weights. Jobs of RLJob refuse moved
experts: the next weight update would load the wrong ones. Importing the module loads numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rljob.cli.errors import UsageError
from rljob.cli.report.write_report import write_page
from rljob.planner.experts.expert_maps import FileError, map_text, read_counts, read_map, routed_loads
from rljob.planner.experts.placement import (
    Counts,
    Placement,
    PlanError,
    Values,
    device_loads,
    imbalance,
    place,
    unplanned_loads,
)
from rljob.planner.experts.relocation import arrivals, relocate
from rljob.planner.experts.windows import choose_way


@dataclass(frozen=True)
class ExpertsRequest:
    """Arguments of the command."""

    load: Path
    devices: int
    replicas: int
    map: Path
    current: Path | None = None


def plan_experts(request: ExpertsRequest) -> dict[str, Any]:
    """Write the map and return what it achieves. Raise UsageError if it cannot be made or written."""
    if request.map.suffix != ".json":
        # vllm_ascend/ascend_config.py:868
        raise UsageError(f"{request.map}: vllm-ascend reads only files that end in .json; rename it")
    try:
        counts = read_counts(request.load)
        current = read_map(request.current) if request.current is not None else None
        return _plan(request, counts, current)
    except (FileError, PlanError) as error:
        raise UsageError(str(error)) from error


def _plan(request: ExpertsRequest, counts: Counts, current: Placement | None) -> dict[str, Any]:
    if current is not None and current.shape[1:] != (request.devices, request.replicas // max(request.devices, 1)):
        raise PlanError(
            f"{request.current}: {current.shape[1]} devices with {current.shape[2]} experts each; with --current, use "
            f"--devices {current.shape[1]} --replicas {current.shape[1] * current.shape[2]}"
        )
    choice = choose_way(counts, request.devices, request.replicas)
    loads = choice.way.loads(counts)
    placement = place(loads, request.devices, request.replicas) if current is None else relocate(loads, current)
    write_page(request.map, map_text(placement), "--map")
    judged = counts.sum(axis=0)
    figures = {
        "withoutMap": _figures(unplanned_loads(judged, request.devices)),
        "planned": _figures(device_loads(loads, placement)),
        "allWindows": _figures(device_loads(judged, placement)),
        "asRouted": _figures(routed_loads(judged, placement)),
    }
    return {
        "layers": counts.shape[1],
        "experts": counts.shape[2],
        "devices": request.devices,
        "replicas": request.replicas,
        "windows": len(counts),
        "plannedFor": str(choice.way),
        "expectedNextWindow": choice.expected,
        "loadedReplicas": None if current is None else arrivals(current, placement),
        "map": str(request.map),
        "maxOverMean": figures,
    }


def _figures(per_device: Values) -> dict[str, float | int]:
    layers = imbalance(per_device)
    return {"mean": float(layers.mean()), "worst": float(layers.max()), "worstLayer": int(layers.argmax())}


LABELS = {
    "withoutMap": "experts in order, without a map",
    "planned": "this map, on the loads it is planned for",
    "allWindows": "this map, on the sum of all windows",
    "asRouted": "… as vllm-ascend shares tokens",
}


def experts_table(document: dict[str, Any]) -> str:
    """Return the same as text."""
    lines = [
        (
            f"{document['layers']} layers, {document['experts']} experts, {document['replicas']} replicas on "
            f"{document['devices']} devices; planned for {document['plannedFor']}"
        ),
        f"{'largest load of a device / mean':<44}{'layers':>8}{'worst':>8}  layer",
    ]
    for name, label in LABELS.items():
        row = document["maxOverMean"][name]
        lines.append(f"{label:<44}{row['mean']:>8.4f}{row['worst']:>8.4f}  {row['worstLayer']}")
    if document["expectedNextWindow"] is not None:
        lines.append(f"{'in the window after a plan (trials)':<44}{document['expectedNextWindow']:>8.4f}")
    if document["loadedReplicas"] is not None:
        of = document["layers"] * document["replicas"]
        lines.append(f"replicas that a device did not hold before: {document['loadedReplicas']} of {of}")
    lines.append(
        f"wrote {document['map']}: eplb_config.expert_map_path of vllm-ascend, with {document['devices']} ranks"
    )
    return "\n".join(lines)
