"""The checkpoint of another job to start from: found when a cluster generation begins, then recorded as a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rljob.api.status import Decision, Resolved
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.observed import Manifest

FIELD = "checkpoint.from.job"


@dataclass(frozen=True)
class Source:
    """The result of looking a job up by its name."""

    path: str | None = None
    problem: str = ""
    """Why there is no path, and how to fix it."""


def find_source(spec: RLJobSpec, siblings: Mapping[str, Manifest], before: Resolved | None) -> Source | None:
    """Return the checkpoint folder of the named job; None where no job is named.

    Its last checkpoint names the folder, because it reflects the job's recipes; before that, its own spec does.
    The folder of a deleted job is known from the decision of an earlier generation.
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
        problem = f"RLJob {wanted} has saved no checkpoint yet and does not set checkpoint.path; set it there"
    else:
        fix = "create it, or set a folder in checkpoint.from.path"
        problem = f"RLJob {wanted} does not exist in the namespace; {fix}"
    return Source(problem=problem)


def source_decision(spec: RLJobSpec, siblings: Mapping[str, Manifest], before: Resolved | None) -> list[Decision]:
    """Return the decision to record, if there is a folder."""
    found = find_source(spec, siblings, before)
    if found is None or found.path is None or spec.checkpoint is None or spec.checkpoint.from_ is None:
        return []
    return [Decision(name=FIELD, value=found.path, reason=_reason(str(spec.checkpoint.from_.job)))]


def pinned_path(resolved: Resolved) -> str | None:
    """Return the recorded folder."""
    return next((decision.value for decision in resolved.decisions if decision.name == FIELD), None)


def _pinned_for(job: str, before: Resolved | None) -> str | None:
    mine = () if before is None else (entry for entry in before.decisions if entry.name == FIELD)
    return next((entry.value for entry in mine if entry.reason == _reason(job)), None)


def _reason(job: str) -> str:
    return f"checkpoint.path of RLJob {job}"
