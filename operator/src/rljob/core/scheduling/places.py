"""For how many workers of a job the devices of nodes suffice, if no device counts twice; called by `discovery`.

Groups with larger workers are placed first, on nodes where they leave the most places to the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup


@dataclass(frozen=True)
class Site:
    """A node as far as its devices and labels matter."""

    devices: int
    groups: frozenset[str]
    """Names of the worker groups that its labels admit."""

    def room(self, group: WorkerGroup) -> int:
        """Return for how many workers of a group it has devices."""
        return self.devices // group.devices_per_node if group.name in self.groups else 0

    def takes(self, groups: Iterable[WorkerGroup]) -> bool:
        """Report whether it has devices for a worker of any group."""
        return any(self.room(group) for group in groups)

    def without(self, workers: int, group: WorkerGroup) -> Site:
        """Return what is left beside workers of a group."""
        return replace(self, devices=self.devices - workers * group.devices_per_node)


def places(spec: RLJobSpec, sites: Iterable[Site]) -> int:
    """Return the number of the job's workers that find devices; at most all of them."""
    found, left = 0, list(sites)
    groups = sorted(spec.worker_groups, key=lambda group: -group.devices_per_node)
    # Workers on the nodes' network have the same ports.
    alone = spec.network.mode == "Host"
    for number, group in enumerate(groups):
        placed, left = _place(group, groups[number + 1 :], left, alone=alone)
        found += placed
    return found


def _place(
    group: WorkerGroup, others: Sequence[WorkerGroup], sites: list[Site], *, alone: bool
) -> tuple[int, list[Site]]:
    """Place one group; return the number of its workers that find devices, and what is left for the others."""
    missing, left = group.nodes, []
    for site in sorted(sites, key=lambda site: _cost(site, group, others)):
        taken = min(site.room(group), missing, 1 if alone else missing)
        missing -= taken
        left.append(replace(site, devices=0) if alone and taken else site.without(taken, group))
    return group.nodes - missing, left


def _cost(site: Site, group: WorkerGroup, others: Sequence[WorkerGroup]) -> float:
    """Return how many places of the others a worker takes there, on average."""
    workers = site.room(group)
    full = site.without(workers, group)
    return sum(site.room(each) - full.room(each) for each in others) / max(workers, 1)
