"""What Ray and selectors know of a worker's role, where groups of a job have different ones.

The workers of a job with one group have no role: they are all alike.
"""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup
from rljob.render import labels
from rljob_runtime.contract import ROLE_RESOURCES, Role


def role_of(spec: RLJobSpec, group: WorkerGroup) -> Role | None:
    """Return the role that distinguishes a group's nodes: Trainer also where its workers generate in turns."""
    if len(spec.worker_groups) == 1:
        return None
    roles = [Role(role) for role in group.roles]
    return Role.TRAINER if Role.TRAINER in roles else roles[0]


def ray_resources(spec: RLJobSpec, group: WorkerGroup) -> dict[str, int]:
    """Return the Ray resources by which the trainer pins actors to the nodes of a role."""
    role = role_of(spec, group)
    return {} if role is None else {ROLE_RESOURCES[role]: 1}


def pod_labels(spec: RLJobSpec, group: WorkerGroup) -> dict[str, str]:
    """Return the label that selects the pods of a role."""
    role = role_of(spec, group)
    return {} if role is None else {labels.ROLE: role.value.lower()}
