"""The requested topology: blocks that divide the nodes, and levels that exist."""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation import fields
from rljob.core.validation.violation import Check, Violation
from rljob.render.accelerators import facts_of
from rljob.render.names import is_label_name
from rljob.render.topology import level_of

LEVEL = "spec.scheduling.topology.level"
BLOCK = "spec.scheduling.topology.nodesPerSuperPodBlock"
LEVEL_LENGTH = 63
"""Longest level in a Workload (Kueue 0.16.2, apis/kueue/v1beta2/workload_types.go: PodSetTopologyRequest)."""


def _blocks_are_whole(spec: RLJobSpec) -> Iterator[Violation]:
    """With an incomplete block, parallel groups of the job would span super-pods."""
    block = spec.scheduling.topology.nodes_per_super_pod_block
    if block is None:
        return
    for group in spec.worker_groups:
        nodes = group.nodes
        if nodes % block:
            below = max(size for size in range(1, min(nodes, block) + 1) if _divides_all(spec, size))
            above = -(-nodes // block) * block
            place = fields.place_of(spec, group)
            yield Violation(
                BLOCK, f"{block} does not divide {place}.nodes {nodes}; set it to {below}, or nodes to {above}"
            )
    if facts_of(spec).super_pod_label is None:
        yield Violation(
            BLOCK,
            f"class {spec.accelerator.class_} has no super-pods; remove it, or let an administrator set superPodLabel "
            "of the class to the label that the nodes of a super-pod share",
        )


def _divides_all(spec: RLJobSpec, size: int) -> bool:
    return all(group.nodes % size == 0 for group in spec.worker_groups)


def _level_is_a_label(spec: RLJobSpec) -> Iterator[Violation]:
    topology = spec.scheduling.topology
    if topology.level is not None and not is_label_name(topology.level):
        yield Violation(LEVEL, f"{topology.level!r} is not a label name; use one such as example.com/rack")
    elif topology.level is not None and spec.scheduling.queue_name is not None and len(topology.level) > LEVEL_LENGTH:
        yield Violation(LEVEL, f"{len(topology.level)} characters, but Kueue allows at most {LEVEL_LENGTH}")


def _required_says_of_what(spec: RLJobSpec) -> Iterator[Violation]:
    topology = spec.scheduling.topology
    if topology.mode == "Required" and topology.nodes_per_super_pod_block is None and level_of(spec) is None:
        yield Violation(
            LEVEL, f"is required with mode Required, because class {spec.accelerator.class_} has no super-pods"
        )


def _queues_know_the_levels(spec: RLJobSpec) -> Iterator[Violation]:
    """Kueue would report it as well, but about the flavor, and only when the job reaches the head of the queue."""
    known = facts_of(spec).topology_levels
    if spec.scheduling.queue_name is None or spec.scheduling.gang == "Volcano" or not known:
        return
    asked = {LEVEL: level_of(spec)}
    if spec.scheduling.topology.nodes_per_super_pod_block is not None:
        asked[BLOCK] = facts_of(spec).super_pod_label
    for place, label in asked.items():
        if label is not None and label not in known:
            yield Violation(
                place,
                f"{label} is not a topology level of class {spec.accelerator.class_}; levels are {', '.join(known)}",
            )


CHECKS: tuple[Check, ...] = (_blocks_are_whole, _level_is_a_label, _required_says_of_what, _queues_know_the_levels)


def _blocks_are_given_out(spec: RLJobSpec) -> Iterator[Violation]:
    """Affinity can request one domain, but not several domains of a size."""
    scheduling, block, nodes = spec.scheduling, spec.scheduling.topology.nodes_per_super_pod_block, spec.nodes
    if block is None or block == nodes or scheduling.queue_name is not None or scheduling.gang == "Volcano":
        return
    if not _divides_all(spec, block):
        # That is reported as a violation.
        return
    volcano = "set scheduling.gang to Volcano"
    alone = len(spec.worker_groups) == 1
    others = f"{volcano}, or request one super-pod with {nodes}" if alone else f"or {volcano}"
    yield Violation(
        BLOCK,
        f"the Kubernetes scheduler has no blocks: without Volcano the {nodes} nodes may be in any super-pods; set "
        f"scheduling.queueName to a queue of Kueue, {others}",
    )


WARNINGS: tuple[Check, ...] = (_blocks_are_given_out,)
