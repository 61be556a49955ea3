"""Who starts all pods of a job or none, and what Volcano says of them: its PodGroup, in words for the status.

Reasons of open Volcano are of volcano.sh/apis v1.14.0 (pkg/apis/scheduling/types.go), those of Ascend's plug-in of
mind-cluster 26.1.0 (component/ascend-for-volcano). One that is not in the table below is passed on as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rljob.api.status import ConditionStatus, Resolved
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.observed import Manifest, PodGroupApi
from rljob.core.reasons import Reason
from rljob.core.scheduling.kueue import Admission, word_of
from rljob.render.accelerators import facts_of
from rljob.render.podgroup import GROUP_NAME, TIER_NAME, TOPOLOGY, Gang, network_topology, stated_gang, super_pod_block

FIELD = "scheduling.gang"
WAITING_PHASES = frozenset({"Pending", "Inqueue"})
"""Nothing is bound: Volcano goes on when the resources of all members are there."""
NO_PODS = frozenset({"NotEnoughTasks", "NotEnoughPodsOfTask"})
"""Reasons that are about pods which nobody has made yet: why not, the pods and their owner say."""
WRONG = frozenset({"JobValidateFailed", "NotSupportPolicy"})
"""Reasons that no free NPU ends: Ascend's plug-in refuses the pods as they are."""
DEFAULT_QUEUE = "default"


def decide_gang(spec: RLJobSpec, api: PodGroupApi | None) -> tuple[Gang, str]:
    """Say who it is, and why; `api` is what the cluster serves, None where no cluster was asked."""
    stated, asked = stated_gang(spec), spec.scheduling.gang
    if stated is Gang.KUEUE:
        return stated, f"queue {spec.scheduling.queue_name} lets the whole cluster start, or nothing of it"
    if asked != "Auto":
        reason = "set in the spec"
        return stated, f"{reason}{_topology_note(spec, api)}" if stated is Gang.VOLCANO else reason
    alone, policy = "there is no scheduling.queueName, and", facts_of(spec).schedule_policy
    if policy is None:
        return Gang.NONE, f"{alone} class {spec.accelerator.class_} has no policy of Volcano's Ascend plug-in"
    if api is None:
        return Gang.NONE, f"{alone} no cluster was asked whether Volcano is there"
    if api.problem:
        return Gang.NONE, f"{alone} {api.problem}"
    reason = f"{alone} Volcano is there, whose Ascend plug-in knows class {spec.accelerator.class_} as {policy}"
    return Gang.VOLCANO, f"{reason}{_topology_note(spec, api)}"


def decided_gang(resolved: Resolved) -> Gang | None:
    """Give who it is, as was decided when the job began; None where nothing was, or another version's word stands."""
    decided = next((entry.value for entry in resolved.decisions if entry.name == FIELD), None)
    return Gang(decided) if decided in list(Gang) else None


def asks_cluster(spec: RLJobSpec) -> bool:
    """Whether the decision depends on what the cluster serves."""
    if stated_gang(spec) is Gang.VOLCANO:
        return True
    open_ = spec.scheduling.gang == "Auto" and spec.scheduling.queue_name is None
    return open_ and facts_of(spec).schedule_policy is not None


def _topology_note(spec: RLJobSpec, api: PodGroupApi | None) -> str:
    notes = [unmet_block(spec), "" if api is None else unmet_topology(spec, api.fields)]
    return "".join(f"; {note}" for note in notes if note)


def unmet_topology(spec: RLJobSpec, fields: frozenset[str]) -> str:
    """Say why scheduling.topology.level cannot be asked of this Volcano; empty: it can, or nothing is asked."""
    level = spec.scheduling.topology.level
    if level is None or network_topology(spec, fields) is not None:
        return ""
    place = f"scheduling.topology.level {level} cannot be asked for: the PodGroup of this cluster has no"
    if TOPOLOGY not in fields:
        return f"{place} {TOPOLOGY}, which Volcano 1.11 and newer have"
    return f"{place} {TIER_NAME}, which Volcano 1.14 and newer have; write the number of the tier"


def unavailable(spec: RLJobSpec, api: PodGroupApi) -> str:
    """Say why no PodGroup can be made of the kind that a job needs, with the fix; empty: it can."""
    place = f"spec.{FIELD} is {Gang.VOLCANO}, but"
    if api.problem:
        return f"{place} {api.problem}; install Volcano, or set it to None, or to Kueue with scheduling.queueName"
    unmet = unmet_topology(spec, api.fields) if spec.scheduling.topology.mode == "Required" else ""
    return f"{place} {unmet}, or take scheduling.topology.mode Preferred" if unmet else ""


def unmet_block(spec: RLJobSpec) -> str:
    """Say why scheduling.topology.nodesPerSuperPodBlock does nothing; empty: it does, or is not set."""
    if spec.scheduling.topology.nodes_per_super_pod_block is None or super_pod_block(spec) is not None:
        return ""
    return f"scheduling.topology.nodesPerSuperPodBlock does nothing: class {spec.accelerator.class_} is in no super-pod"


def judge_group(group: Manifest, head_pod: Manifest | None, *, started: bool = False) -> Admission | None:
    """Say whether Volcano has let a cluster start, and if not, what it waits for; None: it does not say.

    Only a group that holds nothing waits: a lost pod of one that runs is no matter of a queue. `started`: all pods are
    ready, which Volcano may write down later than the kubelets do.
    """
    status, place = group.get("status") or {}, f"queue {group['spec'].get('queue', DEFAULT_QUEUE)} of Volcano"
    phase, told, name = status.get("phase"), _unschedulable(status), group["metadata"]["name"]
    is_member = head_pod is None or _group_of(head_pod) == name
    if phase in ("Running", "Completed") or (started and is_member):
        return Admission(ConditionStatus.TRUE, Reason.ADMITTED, place)
    if started:
        return None
    if head_pod is not None and not is_member:
        return _stuck(
            Reason.OTHER_POD_GROUP,
            f"pod {head_pod['metadata']['name']} is in PodGroup {_group_of(head_pod)}, not in {name}; "
            "turn KubeRay's --batch-scheduler off, or set scheduling.gang to None",
        )
    if not phase:
        return _stuck(Reason.GANG_UNAVAILABLE, f"Volcano has not looked at PodGroup {name}: does its scheduler run?")
    if phase not in WAITING_PHASES or status.get("running") or told.get("reason") in NO_PODS:
        return None
    message = f"{place}: {told.get('message') or f'the PodGroup is {phase}'}"
    if told.get("reason") in WRONG:
        return _stuck(word_of(told), message)
    return Admission(ConditionStatus.FALSE, word_of(told), message)


def _stuck(reason: str, message: str) -> Admission:
    return Admission(ConditionStatus.FALSE, reason, message, patient=False)


def _group_of(pod: Manifest) -> str | None:
    return (pod["metadata"].get("annotations") or {}).get(GROUP_NAME)


def _unschedulable(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give the latest word of why not; Volcano and its plug-ins each keep one."""
    told = [c for c in status.get("conditions") or () if c.get("type") == "Unschedulable" and c.get("status") == "True"]
    return max(told, key=lambda entry: str(entry.get("lastTransitionTime", "")), default={})
