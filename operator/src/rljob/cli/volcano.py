"""What `rljob doctor` and `rljob conformance` judge of Volcano, and of KubeRay beside it. Pure."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence

from rljob.render.podgroup import TIER_NAME, TOPOLOGY

TESTED = "1.14.1"
FOR_MINDCLUSTER = ("1.7", "1.9", "1.12", "1.15")
"""Releases for which MindCluster 7.x and 26.1 build their plug-in (component/ascend-for-volcano/build)."""
TESTING = "`rljob conformance --gang Volcano` tests this one"
BATCH_SCHEDULER_FIX = (
    "remove this argument of KubeRay (values batchScheduler of its chart), or set scheduling.gang to None in every job"
)
OTHER_GROUP = "takes the pods of every RayCluster, also from the PodGroups of jobs with scheduling.gang Volcano"


def batch_scheduler(arguments: Sequence[str]) -> str:
    """Return the argument by which KubeRay schedules pods itself; empty without one (v1.6.2, main.go:98-100)."""
    for word, after in itertools.pairwise((*arguments, "")):
        name, _, value = word.partition("=")
        if name.lstrip("-") == "batch-scheduler" and (value or (after and not after.startswith("-"))):
            return word if value else f"{word}={after}"
        if name.lstrip("-") == "enable-batch-scheduler" and value.lower() not in ("false", "f", "0"):
            return word
    return ""


def release_note(image: str) -> str:
    """Return what is not known of a scheduler's release; empty for one that is tested.

    MindCluster's images have two releases in their tag: v1.9.0-v26.1.0.
    """
    found = re.search(r":v?(\d+\.\d+)(\.\d+)?", image)
    if found is None:
        return f"its image does not name a release; {TESTED} is tested"
    if found[1] == TESTED.rpartition(".")[0]:
        return ""
    if found[1] in FOR_MINDCLUSTER:
        return f"MindCluster builds its plug-in for {found[1]}, and this project tests {TESTED} without it"
    return f"{found[1]} is not tested: {TESTED} is, and MindCluster builds for {', '.join(FOR_MINDCLUSTER)}"


def field_notes(fields: frozenset[str]) -> Iterator[str]:
    """Yield what jobs cannot use of PodGroups whose spec has these fields."""
    if TOPOLOGY not in fields:
        yield f"PodGroups have no {TOPOLOGY} (Volcano 1.11): leave scheduling.topology.level unset"
    elif TIER_NAME not in fields:
        yield f"PodGroups have no {TIER_NAME} (Volcano 1.14): scheduling.topology.level must be the number of a tier"
