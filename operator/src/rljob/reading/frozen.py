"""The spec that a job uses, from the ConfigMap in which the operator froze it.

The status names the ConfigMap, but another user who may create ConfigMaps in the namespace can take its name first.
Therefore it is used only if the RLJob controls it and if it can no longer be changed. The operator checks the same
(`core.context.Context.made`), and the chart's policies let nobody else write such a reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rljob.cluster.manifests import controller_uid
from rljob.reading import UnreadableError
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.configmap import Snapshot, read_snapshot


def snapshot_name(job: Mapping[str, Any]) -> str | None:
    """Return the name of the job's snapshot, None before it has one."""
    name: str | None = ((job.get("status") or {}).get("resolved") or {}).get("snapshotName")
    return name


def snapshot_of(job: Mapping[str, Any], found: Mapping[str, Any], accelerators: AcceleratorTable) -> Snapshot:
    """Return the snapshot in a ConfigMap. Raise UnreadableError if it is invalid or not the operator's."""
    metadata, name = job["metadata"], found["metadata"]["name"]
    try:
        own = controller_uid(found) == metadata["uid"] and found.get("immutable") is True
        if own:
            return read_snapshot(found, accelerators)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnreadableError(
            f"configmap/{name} contains no valid spec ({error}); use the rljob of the operator's release"
        ) from error
    raise UnreadableError(
        f"configmap/{name} was not frozen by the operator for this RLJob: its controller is another object, or it is "
        "not immutable; find out who created it, and delete it"
    )
