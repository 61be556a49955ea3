"""What is kept of an attempt that ended: its record, its last metrics, and what its pods and events reported.

Pods with a finding come first; of the others only names and nodes are kept. Every text is truncated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import ValidationError

from rljob.api.status import Attempt, ConditionType, RLJobStatus, State
from rljob.core import times
from rljob.core.attempts.start_advice import injected_image
from rljob.core.observed import Manifest, Unseen
from rljob.core.status import bounded, document, is_true
from rljob.render.evidence import entries

PODS_MAX = 20
WARNINGS_MAX = 20
TEXT_BYTES = 400
FINAL = (State.SUCCEEDED, State.FAILED, State.STOPPED)
_DELETED = re.compile(
    r"Deleted (?:head|worker) Pod [^/\s]+/([^;\s]+);[^{]*\{ExitCode:\d+,Signal:-?\d+,Reason:OOMKilled,"
)
"""KubeRay v1.6.2, ray-operator/controllers/ray/raycluster_controller.go, reconcilePods: the events DeletedHeadPod and
DeletedWorkerPod, with the state of the Ray container. The message after the reason is the container's own text."""

Entry = dict[str, Any]


def evidence_of(
    attempt: Attempt,
    current: RLJobStatus,
    cluster: Manifest | None,
    pods: tuple[Manifest, ...] | Unseen,
    warnings: tuple[Manifest, ...] | Unseen,
) -> Entry:
    """Return the entry of an attempt. What was not observed is absent; what no longer exists is empty."""
    reported = document(current)
    entry: Entry = {"attempt": attempt.model_dump(mode="json", by_alias=True, exclude_none=True)}
    entry |= {part: reported[part] for part in ("progress", "checkpoint") if part in reported}
    if is_true(current, ConditionType.FINISHED):
        entry["final"] = current.state.value
    if cluster is not None:
        entry["rayCluster"] = _cluster(cluster)
    if not isinstance(pods, Unseen):
        described = sorted((_pod(pod) for pod in pods), key=lambda pod: (not _is_notable(pod), pod["name"]))
        entry["pods"] = described[:PODS_MAX]
        if len(described) > PODS_MAX:
            entry["podsLeftOff"] = len(described) - PODS_MAX
    if not isinstance(warnings, Unseen):
        names = {pod["metadata"]["name"] for pod in pods} if not isinstance(pods, Unseen) else set()
        mine = [event for event in warnings if _is_about(event, attempt.cluster_name, names)]
        entry["warnings"] = [_warning(event) for event in sorted(mine, key=_time)[-WARNINGS_MAX:]]
    return entry


def attempts_of(found: Manifest) -> Iterator[Attempt]:
    """Return the attempts that ended; an unreadable entry is skipped."""
    for entry in entries(found):
        with suppress(ValidationError):
            attempt = Attempt.model_validate(entry.get("attempt") if isinstance(entry, dict) else None)
            if attempt.end_time is not None:
                yield attempt


def final_of(found: Manifest) -> State | None:
    """Return how the job finished, which is stored with its last attempt; None if it did not."""
    last = list(entries(found))[-1:]
    final = last[0].get("final") if last and isinstance(last[0], dict) else None
    return next((state for state in FINAL if state == final), None)


def killed_pods(deletions: Iterable[Manifest], since: str) -> Iterator[str]:
    """Return the pods whose Ray the kernel killed, from the events that KubeRay wrote when it deleted them."""
    for event in deletions:
        found = _DELETED.match(str(event.get("note", "")))
        seen = _time(event)
        if found is not None and seen and times.from_text(seen) >= times.from_text(since):
            yield found[1]


def _is_notable(pod: Entry) -> bool:
    return pod.keys() > {"name", "node", "phase"}


def _cluster(cluster: Manifest) -> Entry:
    state = cluster.get("status") or {}
    return _filled(
        {
            "name": cluster["metadata"]["name"],
            "runtimeImage": injected_image(cluster),
            "state": state.get("state"),
            "reason": _cut(state.get("reason")),
            "readyWorkerReplicas": state.get("readyWorkerReplicas"),
            "deletionTimestamp": cluster["metadata"].get("deletionTimestamp"),
        }
    )


def _pod(pod: Manifest) -> Entry:
    state: Mapping[str, Any] = pod.get("status") or {}
    return {
        "name": pod["metadata"]["name"],
        "node": (pod.get("spec") or {}).get("nodeName", ""),
        "phase": state.get("phase", ""),
        **_filled(
            {
                "reason": _cut(state.get("reason")),
                "message": _cut(state.get("message")),
                "conditions": list(_conditions(state.get("conditions") or ())),
                "containers": list(_containers(state)),
                "deletionTimestamp": pod["metadata"].get("deletionTimestamp"),
            }
        ),
    }


def _conditions(conditions: Iterable[Mapping[str, Any]]) -> Iterator[Entry]:
    """Return a disruption, and conditions that are not as expected."""
    for entry in conditions:
        if (entry["type"] == "DisruptionTarget") == (entry["status"] == "True"):
            words = {name: _cut(entry.get(name)) for name in ("reason", "message")}
            yield _filled({"type": entry["type"], "status": entry["status"], **words})


def _containers(state: Mapping[str, Any]) -> Iterator[Entry]:
    """Return containers that wait, failed or were restarted."""
    for found in (*(state.get("initContainerStatuses") or ()), *(state.get("containerStatuses") or ())):
        now, before = found.get("state") or {}, found.get("lastState") or {}
        ended = now.get("waiting") or now.get("terminated") or before.get("terminated") or {}
        if ended and (ended.get("exitCode") != 0 or found.get("restartCount")):
            entry = {"name": found["name"], "exitCode": ended.get("exitCode"), "restarts": found.get("restartCount")}
            yield _filled({**entry, **{name: _cut(ended.get(name)) for name in ("reason", "message")}})


def _is_about(event: Manifest, cluster: str, pods: set[str]) -> bool:
    """Report whether an event is about the cluster or one of its pods.

    A pod's name starts with that of its cluster, but KubeRay truncates long names at the front; events about such a pod
    are missed once it is gone.
    """
    about = event.get("regarding") or {}
    name = str(about.get("name", ""))
    if about.get("kind") == "RayCluster":
        return name == cluster
    return about.get("kind") == "Pod" and (name in pods or name.startswith(f"{cluster}-"))


def _warning(event: Manifest) -> Entry:
    about = event.get("regarding") or {}
    return _filled(
        {
            "time": _time(event),
            "about": f"{about.get('kind')} {about.get('name')}",
            "reason": _cut(event.get("reason")),
            "note": _cut(event.get("note")),
            "count": (event.get("series") or {}).get("count") or event.get("deprecatedCount"),
        }
    )


def _time(event: Manifest) -> str:
    """Return when an event was seen last; its source decides which of the fields is set."""
    series = event.get("series") or {}
    times = (series.get("lastObservedTime"), event.get("deprecatedLastTimestamp"), event.get("eventTime"))
    return str(next((time for time in times if time), event["metadata"].get("creationTimestamp", "")))


def _cut(text: object) -> str | None:
    return bounded(str(text), TEXT_BYTES) if text else None


def _filled(entry: Entry) -> Entry:
    return {name: value for name, value in entry.items() if value not in (None, "", [])}
