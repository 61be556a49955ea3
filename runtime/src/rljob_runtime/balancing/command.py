"""`python -m rljob_runtime plan-experts`: from counts of tokens to the expert map of a vllm-ascend server.

For servers outside of RLJob, such as an evaluation or a service with the trained weights. Jobs of RLJob refuse moved
experts: the next weight update would load the wrong ones.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rljob_runtime.balancing.expert_maps import FileError, read_counts, read_map, routed_loads, write_map
from rljob_runtime.balancing.placement import (
    Counts,
    Placement,
    PlanError,
    Values,
    device_loads,
    imbalance,
    place,
    unplanned_loads,
)
from rljob_runtime.balancing.relocation import arrivals, relocate
from rljob_runtime.balancing.windows import choose_way

USAGE = 2


@dataclass(frozen=True)
class Request:
    """Arguments of the command."""

    load: Path
    devices: int
    replicas: int
    output: Path
    current: Path | None = None
    as_json: bool = False


def plan_experts(request: Request) -> int:
    """Write the map and print what it achieves; return the exit code."""
    try:
        counts = read_counts(request.load)
        current = read_map(request.current) if request.current is not None else None
        print(_plan(request, counts, current))  # noqa: T201 - the command's output
    except (FileError, PlanError) as error:
        print(f"rljob_runtime: {error}", file=sys.stderr)  # noqa: T201 - the command's output
        return USAGE
    return 0


def _plan(request: Request, counts: Counts, current: Placement | None) -> str:
    if current is not None and current.shape[1:] != (request.devices, request.replicas // max(request.devices, 1)):
        raise PlanError(
            f"{request.current}: {current.shape[1]} devices with {current.shape[2]} experts each; with --current, use "
            f"--devices {current.shape[1]} --replicas {current.shape[1] * current.shape[2]}"
        )
    choice = choose_way(counts, request.devices, request.replicas)
    loads = choice.way.loads(counts)
    placement = place(loads, request.devices, request.replicas) if current is None else relocate(loads, current)
    write_map(request.output, placement)
    judged = counts.sum(axis=0)
    figures = {
        "withoutMap": _figures(unplanned_loads(judged, request.devices)),
        "planned": _figures(device_loads(loads, placement)),
        "allWindows": _figures(device_loads(judged, placement)),
        "asRouted": _figures(routed_loads(judged, placement)),
    }
    document = {
        "layers": counts.shape[1],
        "experts": counts.shape[2],
        "devices": request.devices,
        "replicas": request.replicas,
        "windows": len(counts),
        "plannedFor": str(choice.way),
        "expectedNextWindow": choice.expected,
        "loadedReplicas": None if current is None else arrivals(current, placement),
        "map": str(request.output),
        "maxOverMean": figures,
    }
    return json.dumps(document) if request.as_json else _table(document)


def _figures(per_device: Values) -> dict[str, float | int]:
    layers = imbalance(per_device)
    return {"mean": float(layers.mean()), "worst": float(layers.max()), "worstLayer": int(np.argmax(layers))}


LABELS = {
    "withoutMap": "experts in order, without a map",
    "planned": "this map, on the loads it is planned for",
    "allWindows": "this map, on the sum of all windows",
    "asRouted": "… as vllm-ascend shares tokens",
}


def _table(document: dict[str, Any]) -> str:
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
