"""The spec that a job uses, from the ConfigMap in which the operator froze it.

The status names the ConfigMap, but another user who may create ConfigMaps in the namespace can take its name first.
Therefore it is used only if the RLJob controls it and if it can no longer be changed. The operator checks the same
(`core.context.Context.made`), and the chart's policies let nobody else write such a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cluster.manifests import controller_uid
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.configmap import Snapshot, read_snapshot


def snapshot_name(job: Mapping[str, Any]) -> str | None:
    """Return the name of the job's snapshot, None before it has one."""
    name: str | None = ((job.get("status") or {}).get("resolved") or {}).get("snapshotName")
    return name


def frozen_snapshot(
    job: Mapping[str, Any], name: str, place: kubectl.Place, accelerators: AcceleratorTable
) -> Snapshot:
    """Read a snapshot of the job. Raise UsageError if it is missing, invalid or not the operator's."""
    namespace = job["metadata"].get("namespace") or place.namespace
    return snapshot_of(job, kubectl.get_config_map(name, replace(place, namespace=namespace)), accelerators)


def snapshot_of(job: Mapping[str, Any], found: Mapping[str, Any], accelerators: AcceleratorTable) -> Snapshot:
    """Return the snapshot in a ConfigMap. Raise UsageError if it is invalid or not the operator's."""
    metadata, name = job["metadata"], found["metadata"]["name"]
    try:
        own = controller_uid(found) == metadata["uid"] and found.get("immutable") is True
        if own:
            return read_snapshot(found, accelerators)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(
            f"configmap/{name} contains no valid spec ({error}); use the rljob of the operator's release"
        ) from error
    raise UsageError(
        f"configmap/{name} was not frozen by the operator for this RLJob: its controller is another object, or it is "
        "not immutable; find out who created it, and delete it"
    )
