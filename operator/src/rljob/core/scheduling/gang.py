"""Gang scheduling: which component starts all pods of a job or none, and Volcano's PodGroup in words for the status.

Reasons of Volcano are from volcano.sh/apis v1.14.0 (pkg/apis/scheduling/types.go), those of Ascend's plug-in from
mind-cluster 26.1.0 (component/ascend-for-volcano). A reason that is not in the table below is passed on unchanged.
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
"""No pod is bound; Volcano continues when the resources of all members are available."""
NO_PODS = frozenset({"NotEnoughTasks", "NotEnoughPodsOfTask"})
"""Reasons about pods that do not exist yet; the owner of the pods reports why."""
WRONG = frozenset({"JobValidateFailed", "NotSupportPolicy"})
"""Reasons that free NPUs do not resolve: Ascend's plug-in rejects the pods."""
DEFAULT_QUEUE = "default"


def decide_gang(spec: RLJobSpec, api: PodGroupApi | None) -> tuple[Gang, str]:
    """Return the component and the reason; `api` is None where no cluster was asked."""
    stated, asked = stated_gang(spec), spec.scheduling.gang
    if stated is Gang.KUEUE:
        return stated, f"queue {spec.scheduling.queue_name} starts the whole cluster or nothing of it"
    if asked != "Auto":
        reason = "set in the spec"
        return stated, f"{reason}{_topology_note(spec, api)}" if stated is Gang.VOLCANO else reason
    alone, policy = "scheduling.queueName is not set, and", facts_of(spec).schedule_policy
    if policy is None:
        return Gang.NONE, f"{alone} class {spec.accelerator.class_} has no policy in Volcano's Ascend plug-in"
    if api is None:
        return Gang.NONE, f"{alone} no cluster was asked whether it has Volcano"
    if api.problem:
        return Gang.NONE, f"{alone} {api.problem}"
    reason = f"{alone} Volcano is installed, whose Ascend plug-in knows class {spec.accelerator.class_} as {policy}"
    return Gang.VOLCANO, f"{reason}{_topology_note(spec, api)}"


def decided_gang(resolved: Resolved) -> Gang | None:
    """Return the decision of the job's beginning; None without one, or where another version wrote an unknown value."""
    decided = next((entry.value for entry in resolved.decisions if entry.name == FIELD), None)
    return Gang(decided) if decided in list(Gang) else None


def asks_cluster(spec: RLJobSpec) -> bool:
    """Report whether the decision depends on what the cluster serves."""
    if stated_gang(spec) is Gang.VOLCANO:
        return True
    open_ = spec.scheduling.gang == "Auto" and spec.scheduling.queue_name is None
    return open_ and facts_of(spec).schedule_policy is not None


def _topology_note(spec: RLJobSpec, api: PodGroupApi | None) -> str:
    notes = [unmet_block(spec), "" if api is None else unmet_topology(spec, api.fields)]
    return "".join(f"; {note}" for note in notes if note)


def unmet_topology(spec: RLJobSpec, fields: frozenset[str]) -> str:
    """Return why this Volcano does not support scheduling.topology.level; empty if it does, or if it is not set."""
    level = spec.scheduling.topology.level
    if level is None or network_topology(spec, fields) is not None:
        return ""
    place = f"scheduling.topology.level {level} is not supported: the PodGroup of this cluster has no"
    if TOPOLOGY not in fields:
        return f"{place} {TOPOLOGY}, which Volcano 1.11 and newer have"
    return f"{place} {TIER_NAME}, which Volcano 1.14 and newer have; use the number of the tier"


def unavailable(spec: RLJobSpec, api: PodGroupApi) -> str:
    """Return why the PodGroup that a job needs cannot be created, with the fix; empty if it can."""
    place = f"spec.{FIELD} is {Gang.VOLCANO}, but"
    if api.problem:
        return f"{place} {api.problem}; install Volcano, set it to None, or set it to Kueue with scheduling.queueName"
    unmet = unmet_topology(spec, api.fields) if spec.scheduling.topology.mode == "Required" else ""
    return f"{place} {unmet}, or set scheduling.topology.mode to Preferred" if unmet else ""


def unmet_block(spec: RLJobSpec) -> str:
    """Return why scheduling.topology.nodesPerSuperPodBlock has no effect; empty if it has, or if it is not set."""
    if spec.scheduling.topology.nodes_per_super_pod_block is None or super_pod_block(spec) is not None:
        return ""
    return f"scheduling.topology.nodesPerSuperPodBlock has no effect: class {spec.accelerator.class_} has no super-pods"


def judge_group(group: Manifest, head_pod: Manifest | None, *, started: bool = False) -> Admission | None:
    """Return whether Volcano has started a cluster, and otherwise what it waits for; None where it reports nothing.

    Only a group without any bound pod waits; a lost pod of a running group does not concern the queue. `started` means
    that all pods are ready, which Volcano may record later than the kubelets.
    """
    status, place = group.get("status") or {}, f"queue {group['spec'].get('queue', DEFAULT_QUEUE)} of Volcano"
    phase, condition, name = status.get("phase"), _unschedulable(status), group["metadata"]["name"]
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
        return _stuck(Reason.GANG_UNAVAILABLE, f"Volcano has not processed PodGroup {name}: is its scheduler running?")
    if phase not in WAITING_PHASES or status.get("running") or condition.get("reason") in NO_PODS:
        return None
    message = f"{place}: {condition.get('message') or f'the PodGroup is {phase}'}"
    if condition.get("reason") in WRONG:
        return _stuck(word_of(condition), message)
    return Admission(ConditionStatus.FALSE, word_of(condition), message)


def _stuck(reason: str, message: str) -> Admission:
    return Admission(ConditionStatus.FALSE, reason, message, patient=False)


def _group_of(pod: Manifest) -> str | None:
    return (pod["metadata"].get("annotations") or {}).get(GROUP_NAME)


def _unschedulable(status: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the latest condition that explains the wait; Volcano and its plug-ins each keep one."""
    conditions = [
        c for c in status.get("conditions") or () if c.get("type") == "Unschedulable" and c.get("status") == "True"
    ]
    return max(conditions, key=lambda entry: str(entry.get("lastTransitionTime", "")), default={})
