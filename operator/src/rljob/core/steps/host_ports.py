"""Ports on the nodes' network: a block of the job's own before anything is rendered with it, released at the end.

The intent of the cluster generation is in the status before a block is reserved. The block is in the status before the
RayCluster is rendered with it, and is compared with the ConfigMap once more in that round.
"""

from __future__ import annotations

from rljob.api.status import NetworkStatus
from rljob.core import status
from rljob.core.context import Context
from rljob.core.manifest_facts import port_block
from rljob.core.observed import Unseen
from rljob.core.plan import Plan, WriteAllocations
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.reasons import Reason
from rljob.core.requirements import Pods, Requirements
from rljob.core.scheduling.port_blocks import BLOCKS, Allocations
from rljob.core.step import step
from rljob.core.transitions.conclusions import give_up
from rljob.core.transitions.conditions import report_not_ready, with_cluster_begun
from rljob.core.watched import Watched
from rljob.render import labels

WAIT_SECONDS = 30.0
"""A block becomes free when another job ends."""


def _allocations(seen: Watched) -> Requirements:
    return Requirements(allocations=seen.resolved.host_network is True)


@step(_allocations, when=lambda seen: seen.cluster is None)
def reserve_ports(context: Context) -> Plan | None:
    """Reserve a block before the cluster is frozen; a frozen cluster keeps its block."""
    spec = context.frozen_spec
    if spec is None or spec.network.mode != "Host" or context.frozen_cluster is not None:
        return None
    seen, recorded = context.observed.allocations, _recorded(context)
    if isinstance(seen, Unseen):
        return _ask_for_blocks(context)
    held = seen.block_of(context.job.uid)
    if held is None:
        # After a loss of the ConfigMap: the block that the job had, unless another job was faster.
        own = recorded is not None and seen.can_have(context.job.uid, recorded)
        wanted = recorded if own else seen.free(context.job.namespace)
        if wanted is None:
            return _await_block(context, seen)
        return Plan(effects=(WriteAllocations(seen.with_block(context.job, wanted).manifest()),))
    return None if held == recorded else _write(context, held)


def _ask_for_blocks(context: Context) -> Plan:
    """Wait for the answer; a job that began under an operator without blocks has not asked yet."""
    resolved = context.status.resolved
    if resolved is not None and resolved.host_network is None:
        asking = resolved.model_copy(update={"host_network": True})
        return context.write(context.status.model_copy(update={"resolved": asking}))
    if context.is_late and not status.is_waiting_for(context.status, Reason.WAITING_FOR_PORTS):
        message = "the ConfigMap of port blocks cannot be read; the operator's role needs get and update on it"
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, message)
    return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)


@step()
def recover_ports(context: Context) -> Plan | None:
    """After a loss of the status, read the ports from the cluster."""
    if context.cluster is None or context.status.network is not None:
        return None
    block = port_block(context.cluster)
    return None if block is None else _write(context, block.first)


def _listeners(seen: Watched) -> Requirements:
    """Require the Ray pods, which may listen on the ports; pods of initializers stay and have none."""
    selector = f"{labels.JOB_UID}={seen.job.uid},{labels.RAY_NODE_TYPE}"
    return Requirements(pods=Pods(selector, urgent=True), allocations=True, stops_here=True)


@step(_listeners, when=lambda seen: seen.status.network is not None and seen.finished and not seen.clusters)
def release_ports(context: Context) -> Plan:
    """Release the block when the job is finished and the last pod that may listen is gone."""
    if (
        isinstance(context.observed.pods, Unseen)
        or isinstance(context.observed.allocations, Unseen)
        or context.observed.pods
    ):
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    seen = context.observed.allocations
    if seen.block_of(context.job.uid) is not None and seen.resource_version is not None:
        return Plan(effects=(WriteAllocations(seen.without({context.job.uid}).manifest()),))
    return context.write(context.status.model_copy(update={"network": None}))


def _recorded(context: Context) -> int | None:
    return context.status.network.port_block if context.status.network else None


def _write(context: Context, first: int) -> Plan:
    new = context.status.model_copy(update={"network": NetworkStatus(port_block=first)})
    if not status.is_waiting_for(context.status, Reason.WAITING_FOR_PORTS):
        return context.write(new)
    # startSeconds counts from here: others may have had the ports for days.
    return context.write(with_cluster_begun(context, new.model_copy(update={"intent": context.timed_anew()})))


def _await_block(context: Context, seen: Allocations) -> Plan:
    """Report the wait, for as long as it takes: the job holds nothing, and blocks become free as others end."""
    taken = f"all blocks of ports for network.mode Host are taken, by {len(seen.held)} jobs"
    if seen.has_its_share(context.job.namespace):
        taken = f"jobs of namespace {context.job.namespace} have {seen.pool.share} blocks of ports, a quarter of all"
    message = f"{taken}; the job waits for one of them to end (chart value hostPorts.blocks, by default {BLOCKS})"
    return report_not_ready(
        context, context.status, Reason.WAITING_FOR_PORTS.value, message, problem=True, seconds=WAIT_SECONDS
    )
