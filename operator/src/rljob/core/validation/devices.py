"""Nodes and devices: what Kubernetes and the hardware class allow."""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec, WorkerGroup
from rljob.core.validation import fields
from rljob.core.validation.violation import Check, Violation
from rljob.render.accelerators import facts_of

NODES_MAX = 5000
"""https://kubernetes.io/docs/setup/best-practices/cluster-large/"""


def devices_text(spec: RLJobSpec, group: WorkerGroup) -> str:
    """Return the number of devices of a group and the fields that determine it, for messages."""
    place = fields.place_of(spec, group)
    return f"{group.devices} devices ({place}.nodes {group.nodes} × devicesPerNode {group.devices_per_node})"


def _nodes_are_possible(spec: RLJobSpec) -> Iterator[Violation]:
    """Kubernetes supports no larger cluster."""
    for path, group in fields.groups(spec):
        if group.nodes > NODES_MAX:
            yield Violation(
                f"{path}.nodes", f"{group.nodes} nodes, but Kubernetes supports at most {NODES_MAX}; lower it"
            )


def _devices_fit_a_node(spec: RLJobSpec) -> Iterator[Violation]:
    """A pod cannot have more devices than its node."""
    facts = facts_of(spec)
    for path, group in fields.groups(spec):
        if group.devices_per_node > facts.devices_per_node:
            yield Violation(
                f"{path}.devicesPerNode",
                f"{group.devices_per_node} devices, but a node of class {spec.accelerator.class_} has "
                f"{facts.devices_per_node}; lower it and raise nodes",
            )


def _no_card_is_split(spec: RLJobSpec) -> Iterator[Violation]:
    """The device plug-in allocates whole cards, or one die."""
    facts = facts_of(spec)
    for path, group in fields.groups(spec):
        if group.devices_per_node % facts.dies_per_card and group.devices_per_node != 1:
            yield Violation(
                f"{path}.devicesPerNode",
                f"{group.devices_per_node} devices split a card: class {spec.accelerator.class_} has "
                f"{facts.dies_per_card} dies per card; use a multiple of {facts.dies_per_card}",
            )


CHECKS: tuple[Check, ...] = (_nodes_are_possible, _devices_fit_a_node, _no_card_is_split)
