"""Read the spec that a job uses with kubectl."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rljob.cli import kubectl
from rljob.cli.errors import as_usage_error
from rljob.reading.frozen import snapshot_of
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.configmap import Snapshot


def frozen_snapshot(
    job: Mapping[str, Any], name: str, place: kubectl.Place, accelerators: AcceleratorTable
) -> Snapshot:
    """Read a snapshot of the job. Raise UsageError if it is missing, invalid or not the operator's."""
    namespace = job["metadata"].get("namespace") or place.namespace
    found = kubectl.get_config_map(name, replace(place, namespace=namespace))
    with as_usage_error():
        return snapshot_of(job, found, accelerators)
