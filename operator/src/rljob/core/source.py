"""Where a run begins that names another job's checkpoint: found when a generation begins, then pinned as a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rljob.api.status import Decision, Resolved
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.observed import Manifest

FIELD = "checkpoint.from.job"


@dataclass(frozen=True)
class Source:
    """What became of a job's name."""

    path: str | None = None
    problem: str = ""
    """Why there is no path, and what to do."""


def find_source(spec: RLJobSpec, siblings: Mapping[str, Manifest]) -> Source | None:
    """Look for the named job's checkpoint folder; None where no job is named.

    What that job saved says where, since it knows its recipes; before that, what it says of itself.
    """
    wanted = spec.checkpoint.from_.job if spec.checkpoint and spec.checkpoint.from_ else None
    if wanted is None:
        return None
    if wanted not in siblings:
        return Source(
            problem=f"there is no other RLJob {wanted} in the namespace; create it, or name a folder in "
            "checkpoint.from.path"
        )
    saved = (siblings[wanted].get("status") or {}).get("checkpoint") or {}
    named = (siblings[wanted].get("spec") or {}).get("checkpoint") or {}
    path = saved.get("path") or named.get("path")
    if path is None:
        return Source(
            problem=f"RLJob {wanted} has saved no checkpoint so far and sets no checkpoint.path; set it there"
        )
    return Source(path=str(path))


def source_decision(spec: RLJobSpec, siblings: Mapping[str, Manifest]) -> list[Decision]:
    """Give what is pinned of it, if there is anything."""
    found = find_source(spec, siblings)
    if found is None or found.path is None or spec.checkpoint is None or spec.checkpoint.from_ is None:
        return []
    return [Decision(name=FIELD, value=found.path, reason=f"checkpoint.path of RLJob {spec.checkpoint.from_.job}")]


def pinned_path(resolved: Resolved) -> str | None:
    """Give the path that was pinned."""
    return next((decision.value for decision in resolved.decisions if decision.name == FIELD), None)
