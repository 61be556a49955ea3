"""What Ray and selectors know of a worker's role, where a job trains and generates on nodes of their own.

Workers that do both, in turns, have no role: they are all alike.
"""

from __future__ import annotations

from rljob.api.v1alpha1 import WorkerGroup
from rljob.render import labels
from rljob_runtime.contract import ROLE_RESOURCES, Role


def ray_resources(group: WorkerGroup) -> dict[str, int]:
    """Return the Ray resources by which the trainer pins actors to the nodes of a role."""
    role = _only_role(group)
    return {} if role is None else {ROLE_RESOURCES[role]: 1}


def pod_labels(group: WorkerGroup) -> dict[str, str]:
    """Return the label that selects the pods of a role."""
    role = _only_role(group)
    return {} if role is None else {labels.ROLE: role.value.lower()}


def _only_role(group: WorkerGroup) -> Role | None:
    return Role(group.roles[0]) if len(group.roles) == 1 else None
