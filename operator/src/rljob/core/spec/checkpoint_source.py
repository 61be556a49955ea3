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


def find_source(spec: RLJobSpec, siblings: Mapping[str, Manifest], before: Resolved | None) -> Source | None:
    """Look for the named job's checkpoint folder; None where no job is named.

    What that job saved says where, since it knows its recipes; before that, what it says of itself. One that is gone
    is known from what an earlier generation pinned.
    """
    wanted = spec.checkpoint.from_.job if spec.checkpoint and spec.checkpoint.from_ else None
    if wanted is None:
        return None
    origin = siblings.get(wanted) or {}
    saved = (origin.get("status") or {}).get("checkpoint") or {}
    named = (origin.get("spec") or {}).get("checkpoint") or {}
    path = saved.get("path") or named.get("path") or _pinned_for(wanted, before)
    if path is not None:
        return Source(path=str(path))
    if origin:
        problem = f"RLJob {wanted} has saved no checkpoint so far and sets no checkpoint.path; set it there"
    else:
        fix = "create it, or name a folder in checkpoint.from.path"
        problem = f"there is no other RLJob {wanted} in the namespace; {fix}"
    return Source(problem=problem)


def source_decision(spec: RLJobSpec, siblings: Mapping[str, Manifest], before: Resolved | None) -> list[Decision]:
    """Give what is pinned of it, if there is anything."""
    found = find_source(spec, siblings, before)
    if found is None or found.path is None or spec.checkpoint is None or spec.checkpoint.from_ is None:
        return []
    return [Decision(name=FIELD, value=found.path, reason=_reason(str(spec.checkpoint.from_.job)))]


def pinned_path(resolved: Resolved) -> str | None:
    """Give the path that was pinned."""
    return next((decision.value for decision in resolved.decisions if decision.name == FIELD), None)


def _pinned_for(job: str, before: Resolved | None) -> str | None:
    mine = () if before is None else (entry for entry in before.decisions if entry.name == FIELD)
    return next((entry.value for entry in mine if entry.reason == _reason(job)), None)


def _reason(job: str) -> str:
    return f"checkpoint.path of RLJob {job}"
