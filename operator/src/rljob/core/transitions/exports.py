"""Exports in the status: which one is under way, what a round must look at again, and how entries are written."""

from __future__ import annotations

from rljob.api.export_status import ExportedStep, ExportState, ExportStatus
from rljob.api.status import RLJobStatus
from rljob.core.observed import Refusal
from rljob.core.plan import Plan

POLL_SECONDS = 10.0
"""Between two looks at an export, which takes minutes."""
KEPT = 8
"""Entries of status.export.steps."""
UNDER_WAY = frozenset({ExportState.WAITING, ExportState.RUNNING})


def of(current: RLJobStatus) -> ExportStatus:
    """Return what is recorded of exports."""
    return current.export or ExportStatus()


def under_way(current: RLJobStatus) -> ExportedStep | None:
    """Return the export that has not ended; there is at most one."""
    return next((entry for entry in of(current).steps if entry.state in UNDER_WAY), None)


def with_entry(current: RLJobStatus, entry: ExportedStep, request: str | None = None) -> RLJobStatus:
    """Return the status with an entry added, or replaced in its place, and the request that it answers."""
    told = of(current)
    known = any(each.name == entry.name for each in told.steps)
    steps = [entry if each.name == entry.name else each for each in told.steps] if known else [*told.steps, entry]
    return with_request(
        current.model_copy(update={"export": ExportStatus(steps=steps[-KEPT:])}), request or told.request
    )


def with_request(current: RLJobStatus, request: str | None) -> RLJobStatus:
    """Return the status with a request that was taken up."""
    return current.model_copy(update={"export": of(current).model_copy(update={"request": request})})


def is_of_an_export(current: RLJobStatus, refusal: Refusal) -> bool:
    """Report whether a child that cannot be created is an export, which never ends the job."""
    return refusal.kind == "Job" and any(entry.name == refusal.name for entry in of(current).steps)


def paced(current: RLJobStatus, plan: Plan) -> Plan:
    """Return a plan that waits no longer than until the next look at an export; it may be the only one that waits."""
    return plan if under_way(current) is None else plan.waiting_at_most(POLL_SECONDS)
