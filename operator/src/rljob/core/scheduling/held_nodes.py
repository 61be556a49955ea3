"""A partially scheduled cluster: some pods have nodes while others wait for devices.

Kubernetes schedules pods one by one, so that without a queue two jobs may each hold what the other needs forever. The
scheduler's message decides, "Insufficient" and the resource (kubernetes v1.36.2,
pkg/scheduler/framework/plugins/noderesources/fit.go). `attempts.start_diagnosis` handles pods that wait for anything
else, such as a label, a volume or an image.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from rljob.core.attempts.scheduler_messages import explained
from rljob.core.jitter import jittered
from rljob.core.observed import Manifest
from rljob.core.scheduling.scheduled import placed_time, scheduled_condition
from rljob.core.scheduling.worker_sizes import WorkerSizes, group_of
from rljob.render.labels import RAY_NODE_TYPE

HOLD_JITTER = 1.0
"""Of two jobs that hold what the other needs, one yields first, earlier by more than its pods take to terminate."""
BACKOFF_SECONDS_MAX = 300.0
"""Longest pause before the next try, without jitter; shorter ones are half the time that the job has waited."""
WORDS_LIMIT = 300
"""Characters kept of the scheduler's message; the rest is about pods that could be preempted."""


@dataclass(frozen=True)
class Holding:
    """How many pods of a partly placed cluster have nodes, and how many wait for devices."""

    placed: int
    """Pods that have a node."""
    waiting: int
    """Pods that wait for devices."""
    since: datetime | None
    """Since when some have a node and others wait; None if none has one."""
    words: str
    """The scheduler's message about the first waiting pod."""


def find_holding(
    pods: Iterable[Manifest], resource: str, devices: Mapping[str, int], sizes: WorkerSizes
) -> Holding | None:
    """Return what a cluster holds while it waits for devices of others; None if it does not wait.

    `devices` are those of each node; a node that is not known has those of one worker.
    """
    living = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    placed = [pod for pod in living if (pod.get("spec") or {}).get("nodeName")]
    ours = {size: _used_up(placed, devices, sizes, size) for size in {sizes.of(group_of(pod)) for pod in living}}
    waiting = sorted(
        (
            (pod["metadata"]["name"], pod, condition)
            for pod in living
            if (condition := _lack(pod, resource, ours[sizes.of(group_of(pod))])) is not None
        ),
        key=lambda entry: str(entry[0]),
    )
    if not waiting:
        return None
    name, _, condition = waiting[0]
    first = min(placed_time(pod) for _, pod, _ in waiting)
    began = max(first, min(map(placed_time, placed))) if placed else None
    return Holding(len(placed), len(waiting), began, f"pod {name}: {_short(explained(str(condition['message'])))}")


def bound_seconds(partial_seconds: float, seed: str) -> float:
    """Return how long a cluster may hold a part of its nodes; `seed` names job and generation."""
    return jittered(partial_seconds, f"hold/{seed}", HOLD_JITTER)


def backoff_seconds(waited_seconds: float, partial_seconds: float, seed: str) -> float:
    """Return the pause before the next try."""
    seconds = min(max(waited_seconds, partial_seconds) / 2, BACKOFF_SECONDS_MAX)
    return round(jittered(seconds, f"back off/{seed}", HOLD_JITTER), 1)


def worker_seconds(pods: Iterable[Manifest], since: datetime, now: datetime) -> list[tuple[str, float]]:
    """Return the worker group of each worker that has a node, and for how many seconds it has had it."""
    placed = [pod for pod in pods if _is_worker(pod) and (pod.get("spec") or {}).get("nodeName")]
    return [(group_of(pod), max((now - max(placed_time(pod), since)).total_seconds(), 0.0)) for pod in placed]


def _is_worker(pod: Manifest) -> bool:
    return (pod["metadata"].get("labels") or {}).get(RAY_NODE_TYPE) == "worker"


def _lack(pod: Manifest, resource: str, ours: int) -> dict[str, Any] | None:
    """Return the scheduler's condition of a pod, if more nodes than `ours` lack free devices for it."""
    # A nominated pod waits for pods that the scheduler preempted, which may save for minutes.
    if (pod.get("spec") or {}).get("nodeName") or (pod.get("status") or {}).get("nominatedNodeName"):
        return None
    scheduled = scheduled_condition(pod)
    if scheduled is None or scheduled["status"] != "False":
        return None
    words = str(scheduled.get("message")).partition(" preemption: ")[0]
    lacking = re.findall(rf"(\d{{1,9}}) Insufficient {re.escape(resource)}(?![\w-])", words)
    # With the host network, a node with a pod of this job is reported as without free ports first.
    taken = re.findall(r"(\d{1,9}) node\(s\) didn't have free ports", words)
    return scheduled if lacking and sum(map(int, (*lacking, *taken))) > ours else None


def _used_up(placed: Iterable[Manifest], devices: Mapping[str, int], sizes: WorkerSizes, size: int) -> int:
    """Return the number of nodes on which the job's own workers leave no room for another one of that size."""
    held = Counter[str]()
    for pod in placed:
        if _is_worker(pod):
            held[pod["spec"]["nodeName"]] += sizes.of(group_of(pod))
    return sum(count + size > devices.get(node, size) for node, count in held.items())


def _short(text: str) -> str:
    """Return what is missing, without what follows about resource claims and preemption."""
    flat = re.split(r"\. |,? preemption: ", " ".join(text.split()))[0].rstrip(".")
    return flat if len(flat) <= WORDS_LIMIT else flat[: WORDS_LIMIT - 1] + "…"
