"""Ports on the nodes' network: a block of the job's own before anything is rendered with it, and back at the end.

The intent of the cluster generation stands in the status before a block is reserved; the block stands in the status
before the RayCluster is rendered with it, and is compared with the ConfigMap once more in that round.
"""

from __future__ import annotations

from rljob.api.status import ConditionType, NetworkStatus
from rljob.core import clock, status
from rljob.core.observed import Unseen
from rljob.core.plan import Plan, WriteAllocations
from rljob.core.ports import BLOCKS
from rljob.core.reasons import Reason
from rljob.core.steps.restarting import give_up
from rljob.core.steps.starting import tell, with_cluster_begun
from rljob.core.view import LOOK_AGAIN_SECONDS, View, port_block

WAIT_SECONDS = 30.0
"""A block comes free when another job ends."""


def reserve_ports(view: View) -> Plan | None:
    """Have a block before the cluster is frozen; frozen ones keep theirs."""
    spec = view.frozen_spec
    if spec is None or spec.network.mode != "Host" or view.cluster is not None or view.frozen_cluster is not None:
        return None
    seen, recorded = view.observed.allocations, _recorded(view)
    if isinstance(seen, Unseen):
        return _ask_for_blocks(view)
    held = seen.block_of(view.job.uid)
    if held is None:
        # After a loss of the ConfigMap: the block that it had, unless somebody else was faster.
        wanted = recorded if recorded is not None and seen.can_have(view.job.uid, recorded) else seen.free()
        if wanted is None:
            return _await_block(view, len(seen.held))
        return Plan(effects=(WriteAllocations(seen.with_block(view.job, wanted).manifest()),))
    return None if held == recorded else _write(view, held)


def _ask_for_blocks(view: View) -> Plan:
    """Wait for the answer; a job that an operator without blocks began has not asked yet."""
    resolved = view.status.resolved
    if resolved is not None and resolved.host_network is None:
        asking = resolved.model_copy(update={"host_network": True})
        return view.write(view.status.model_copy(update={"resolved": asking}))
    if view.now >= clock.from_text(view.intent.start_deadline) and not _waits(view):
        message = "the ConfigMap of port blocks cannot be read; the operator's role needs get and update on it"
        return give_up(view, Reason.START_DEADLINE_EXCEEDED, message)
    return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)


def recover_ports(view: View) -> Plan | None:
    """After a loss of the status, read from the cluster which ports it has."""
    if view.cluster is None or view.status.network is not None:
        return None
    block = port_block(view.cluster)
    return None if block is None else _write(view, block.first)


def release_ports(view: View) -> Plan | None:
    """Give the block back when the job is finished and the last pod that may listen is gone."""
    if view.status.network is None or not status.is_true(view.status, ConditionType.FINISHED):
        return None
    if view.observed.clusters:
        return None
    if isinstance(view.observed.pods, Unseen) or isinstance(view.observed.allocations, Unseen) or view.observed.pods:
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    seen = view.observed.allocations
    if seen.block_of(view.job.uid) is not None and seen.resource_version is not None:
        return Plan(effects=(WriteAllocations(seen.without({view.job.uid}).manifest()),))
    return view.write(view.status.model_copy(update={"network": None}))


def _recorded(view: View) -> int | None:
    return view.status.network.port_block if view.status.network else None


def _write(view: View, first: int) -> Plan:
    new = view.status.model_copy(update={"network": NetworkStatus(port_block=first)})
    if not _waits(view):
        return view.write(new)
    # The clock of startSeconds begins here: others may have had the ports for days.
    return view.write(with_cluster_begun(view, new.model_copy(update={"intent": view.timed_anew()})))


def _waits(view: View) -> bool:
    told = status.condition(view.status, ConditionType.CLUSTER_READY)
    return told is not None and told.reason == Reason.WAITING_FOR_PORTS


def _await_block(view: View, holders: int) -> Plan:
    """Say so, for as long as it takes: the job holds nothing, and blocks come free as others end."""
    message = (
        f"all blocks of ports for network.mode Host are taken, by {holders} jobs; the job waits for one of them to end "
        f"(chart value hostPorts.blocks, by default {BLOCKS})"
    )
    return tell(view, view.status, Reason.WAITING_FOR_PORTS.value, message, problem=True, seconds=WAIT_SECONDS)
