"""What Kueue reports about a cluster: the Workload beside the RayCluster, in words for the condition Admitted.

The operator only reads it: spec.suspend of the cluster and the whole Workload belong to Kueue. Reasons are those of
Kueue 0.15 and newer (apis/kueue/v1beta2/workload_types.go); one that is not in the tables is passed on unchanged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api.status import ConditionStatus, FailureCause
from rljob.core.observed import Manifest, Unseen
from rljob.core.reasons import Reason
from rljob.render.labels import KUEUE_PRIORITY, KUEUE_QUEUE

EVICTIONS: Mapping[str, FailureCause] = {
    "NodeFailures": FailureCause.INFRASTRUCTURE,
    "PodsReadyTimeout": FailureCause.INFRASTRUCTURE,
}
"""Evictions that do not serve another workload; none is a failure of the user."""
_WORD = re.compile("[A-Za-z][A-Za-z0-9]{0,127}")


@dataclass(frozen=True)
class Admission:
    """Whether a cluster may start."""

    value: ConditionStatus
    reason: str
    message: str
    patient: bool = True
    """Whether the cluster waits for the end of others; no deadline applies to such a wait."""


@dataclass(frozen=True)
class Eviction:
    """Why a cluster had to stop."""

    reason: str
    cause: FailureCause
    message: str


def is_queued(cluster: Manifest) -> bool:
    """Report whether Kueue manages a cluster."""
    return KUEUE_QUEUE in (cluster["metadata"].get("labels") or {})


def judge_admission(cluster: Manifest, workload: Manifest | Unseen | None, *, patient: bool) -> Admission:
    """Return whether a cluster that Kueue manages may start, and otherwise what it waits for.

    `patient` means that the cluster is so young that its Workload may not exist yet.
    """
    if not cluster["spec"].get("suspend", False):
        return Admission(ConditionStatus.TRUE, Reason.ADMITTED, _place(workload))
    queue = cluster["metadata"]["labels"][KUEUE_QUEUE]
    waits = f"LocalQueue {queue} has not admitted the cluster"
    if isinstance(workload, Unseen):
        return _no(
            Reason.WAITING_FOR_QUEUE, f"{waits}; its Workload cannot be read (is Kueue 0.15 or newer installed?)"
        )
    if workload is None:
        return _no(Reason.WAITING_FOR_QUEUE, waits) if patient else _no(Reason.NO_WORKLOAD, _why_none(cluster))
    if workload["spec"].get("active") is False:
        why = (_true(workload, "Evicted") or {}).get("message") or "its spec.active was set to false"
        fix = f"set spec.active of Workload {workload['metadata']['name']} to true to continue"
        return _no(Reason.DEACTIVATED, f"{why}; {fix}")
    # Quota comes first: without it, `Admitted` only states that there is none.
    unmet = [entry for kind in ("QuotaReserved", "Admitted") if (entry := _false(workload, kind)) is not None]
    evicted = _true(workload, "Evicted")
    # Until it is evaluated again, Kueue repeats the reason of the eviction for the missing quota.
    texts = {entry.get("message", ""): None for entry in (*unmet[:1], *((evicted,) if evicted else ()))}
    reason = word_of(unmet[0]) if unmet else Reason.WAITING_FOR_QUEUE
    return _no(reason, "; ".join(filter(None, texts)) or waits)


def find_eviction(workload: Manifest | Unseen | None) -> Eviction | None:
    """Return why Kueue evicts a cluster's pods; None where it does not, or where it is not known."""
    if workload is None or isinstance(workload, Unseen):
        return None
    evicted = _true(workload, "Evicted")
    if evicted is None:
        return None
    reason = word_of(evicted)
    cause = EVICTIONS.get(reason, FailureCause.PREEMPTION)
    return Eviction(reason, cause, f"Kueue evicted it: {reason}: {evicted.get('message', '')}".rstrip(": "))


def _no(reason: str, message: str) -> Admission:
    return Admission(ConditionStatus.FALSE, reason, message)


def _place(workload: Manifest | Unseen | None) -> str:
    """Return the ClusterQueue whose quota is used, where it is known."""
    if workload is None or isinstance(workload, Unseen):
        return ""
    queue = ((workload.get("status") or {}).get("admission") or {}).get("clusterQueue")
    return f"ClusterQueue {queue}" if queue else ""


def _why_none(cluster: Manifest) -> str:
    priority = (cluster["metadata"].get("labels") or {}).get(KUEUE_PRIORITY)
    asked = f"does the WorkloadPriorityClass {priority} exist, " if priority else "is it running, "
    return f"Kueue created no Workload for the RayCluster: {asked}and is ray.io/raycluster among its integrations?"


def _conditions(workload: Manifest) -> dict[str, dict[str, Any]]:
    return {entry["type"]: entry for entry in (workload.get("status") or {}).get("conditions") or ()}


def _true(workload: Manifest, kind: str) -> dict[str, Any] | None:
    found = _conditions(workload).get(kind)
    return found if found is not None and found["status"] == "True" else None


def _false(workload: Manifest, kind: str) -> dict[str, Any] | None:
    found = _conditions(workload).get(kind)
    return found if found is not None and found["status"] != "True" else None


def word_of(entry: Mapping[str, Any]) -> str:
    """Return the reason of a condition, where it is valid for a condition of the RLJob."""
    text = str(entry.get("reason", ""))
    return text if _WORD.fullmatch(text) else Reason.WAITING_FOR_QUEUE
