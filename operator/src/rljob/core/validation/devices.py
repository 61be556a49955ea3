"""Nodes and devices: what Kubernetes and the hardware class allow."""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.render.accelerators import facts_of

NODES_MAX = 5000
"""https://kubernetes.io/docs/setup/best-practices/cluster-large/"""
GROUP = "spec.workerGroups[0]"


def devices_text(spec: RLJobSpec) -> str:
    """Return the number of devices and the fields that determine it, for messages."""
    group = spec.worker_groups[0]
    return f"{spec.devices} devices (workerGroups[0].nodes {group.nodes} × devicesPerNode {group.devices_per_node})"


def _nodes_are_possible(spec: RLJobSpec) -> Iterator[Violation]:
    """Kubernetes supports no larger cluster."""
    nodes = spec.worker_groups[0].nodes
    if nodes > NODES_MAX:
        yield Violation(f"{GROUP}.nodes", f"{nodes} nodes, but Kubernetes supports at most {NODES_MAX}; lower it")


def _devices_fit_a_node(spec: RLJobSpec) -> Iterator[Violation]:
    """A pod cannot have more devices than its node."""
    wanted, facts = spec.worker_groups[0].devices_per_node, facts_of(spec)
    if wanted > facts.devices_per_node:
        yield Violation(
            f"{GROUP}.devicesPerNode",
            f"{wanted} devices, but a node of class {spec.accelerator.class_} has {facts.devices_per_node}; "
            "lower it and raise nodes",
        )


def _no_card_is_split(spec: RLJobSpec) -> Iterator[Violation]:
    """The device plug-in allocates whole cards, or one die."""
    wanted, facts = spec.worker_groups[0].devices_per_node, facts_of(spec)
    if wanted % facts.dies_per_card and wanted != 1:
        yield Violation(
            f"{GROUP}.devicesPerNode",
            f"{wanted} devices split a card: class {spec.accelerator.class_} has {facts.dies_per_card} dies per card; "
            f"use a multiple of {facts.dies_per_card}",
        )


CHECKS: tuple[Check, ...] = (_nodes_are_possible, _devices_fit_a_node, _no_card_is_split)
