"""What is made of checkpoints beside the run, also after it has finished: exports and evaluations, a row for each.

One of a kind at a time: a decision is written to the status first, then its child is created, and its end is recorded.
Nothing here waits or ends the job: one that is refused or fails is an entry of the status and an event. The steps
`exporting` and `evaluating` decide what is due and what a child has reported; all else is here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from rljob.api.evaluation import EvaluatedStep, EvaluationState, EvaluationStatus
from rljob.api.export_status import ExportedStep, ExportState, ExportStatus
from rljob.api.status import RLJobStatus
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.context import Context
from rljob.core.observed import Manifest, Refusal, Unseen
from rljob.core.plan import CreateObject, Plan
from rljob.core.requirements import NOTHING, Requirements
from rljob.core.spec.model_shape import conversion_memory
from rljob.core.watched import Watched
from rljob.render.evaluation import build_evaluation
from rljob.render.export import build_export
from rljob.render.names import JobIdentity

E = TypeVar("E", bound=ExportedStep | EvaluatedStep)
S = TypeVar("S", bound=ExportStatus | EvaluationStatus)


@dataclass(frozen=True)
class Consumer(Generic[E, S]):
    """A row of the table: a kind of object that is made from checkpoints, such as an export."""

    field: str
    """Of spec and status."""
    kind: str
    """Of the child."""
    poll_seconds: float
    """Between two looks at the child, which takes minutes."""
    kept: int
    """Entries of the status."""
    status: type[S]
    running: ExportState | EvaluationState
    waiting: ExportState | None
    """For another try to create its child."""
    was_created: Callable[[E], bool]
    seen: Callable[[Context], Manifest | Unseen | None]
    """The child."""
    build: Callable[[JobIdentity, RLJobSpec, Any, str, int, int | None], dict[str, Any]]
    """Builds the child from identity, spec, the field of the spec, name, step and memory of the conversion."""

    def of(self, current: RLJobStatus) -> S:
        """Return the part of the status that records them."""
        found: S | None = getattr(current, self.field)
        return found or self.status()

    def entries(self, current: RLJobStatus) -> list[E]:
        """Return the recorded entries, the newest last."""
        found: list[E] = self.of(current).steps  # type: ignore[assignment] # a row has the entries of its status
        return found

    def under_way(self, current: RLJobStatus) -> E | None:
        """Return the entry that has not ended; there is at most one."""
        return next((entry for entry in self.entries(current) if entry.state in (self.running, self.waiting)), None)

    def with_entry(self, current: RLJobStatus, entry: E) -> RLJobStatus:
        """Return the status with an entry added, or replaced in its place."""
        before = self.entries(current)
        known = any(each.name == entry.name for each in before)
        steps = [entry if each.name == entry.name else each for each in before] if known else [*before, entry]
        recorded = self.of(current).model_copy(update={"steps": steps[-self.kept :]})
        return current.model_copy(update={self.field: recorded})

    def owns(self, current: RLJobStatus, refusal: Refusal) -> bool:
        """Report whether a child that cannot be created belongs to this row; such a refusal never ends the job."""
        return refusal.kind == self.kind and any(entry.name == refusal.name for entry in self.entries(current))

    def paced(self, current: RLJobStatus, plan: Plan) -> Plan:
        """Return the plan; while an entry is under way, its next round is due when the child is looked at again."""
        return plan if self.under_way(current) is None else plan.waiting_at_most(self.poll_seconds)

    def is_stated(self, seen: Watched) -> bool:
        """Report whether the spec may set the field, itself or by a recipe, and a checkpoint exists."""
        stated = bool(seen.raw_spec.get(self.field)) or bool(seen.raw_spec.get("recipeRef"))
        return stated and seen.status.checkpoint is not None

    def removed(self) -> str:
        """Return the reason for ending an entry whose field was removed from the spec."""
        return f"spec.{self.field} was removed"


@dataclass(frozen=True)
class Decisions(Generic[E]):
    """What a step decides itself about its row."""

    begin: Callable[[Context, RLJobSpec], Plan | None]
    """Records a new entry; None if none is due."""
    refused: Callable[[Context, E, Refusal], Plan]
    """Records that the child cannot be created."""
    follow: Callable[[Context, E, Manifest], Plan | None]
    """Records how far the child is; None if that is known."""
    failed: Callable[[Context, E, str], Plan]
    """Records a failure for good."""
    retry: Callable[[Context, E], Plan | None] | None = None
    """Tries a waiting entry again when it is due. None for a row whose entries never wait."""


EXPORTS: Consumer[ExportedStep, ExportStatus] = Consumer(
    field="export",
    kind="Job",
    poll_seconds=10.0,
    kept=8,
    status=ExportStatus,
    running=ExportState.RUNNING,
    waiting=ExportState.WAITING,
    was_created=lambda entry: entry.attempts > 0,
    seen=lambda context: context.observed.export.job,
    build=build_export,
)
EVALUATIONS: Consumer[EvaluatedStep, EvaluationStatus] = Consumer(
    field="evaluation",
    kind="RLJob",
    poll_seconds=15.0,  # the RLJob is in the store
    kept=16,
    status=EvaluationStatus,
    running=EvaluationState.RUNNING,
    waiting=None,
    was_created=lambda entry: entry.created,
    seen=lambda context: context.observed.evaluation,
    build=build_evaluation,
)


CONSUMERS: tuple[Consumer[Any, Any], ...] = (EXPORTS, EVALUATIONS)


def advance(context: Context, row: Consumer[E, S], decisions: Decisions[E]) -> Plan | None:
    """Begin one that is due, or record how far the one under way is."""
    spec = context.frozen_spec if context.began else None
    if spec is None:
        return None
    entry = row.under_way(context.status)
    if entry is None:
        return decisions.begin(context, spec)
    if decisions.retry is not None and entry.state is row.waiting:
        return decisions.retry(context, entry)
    refusals = context.observed.refusals
    if (refusal := next((r for r in refusals if (r.kind, r.name) == (row.kind, entry.name)), None)) is not None:
        return decisions.refused(context, entry, refusal)
    found = row.seen(context)
    if isinstance(found, Unseen):
        return None
    if found is None:
        return _create(context, row, spec, entry, decisions)
    if not context.made(found):
        return decisions.failed(context, entry, f"{row.kind} {entry.name} was not created by this operator; delete it")
    return decisions.follow(context, entry, found)


def _create(context: Context, row: Consumer[E, S], spec: RLJobSpec, entry: E, decisions: Decisions[E]) -> Plan:
    if row.was_created(entry):
        return decisions.failed(context, entry, f"{row.kind} {entry.name} was deleted")
    wanted = getattr(context, row.field)
    if wanted is None or spec.checkpoint is None:
        return decisions.failed(context, entry, row.removed())
    saved = context.status.checkpoint
    memory = conversion_memory(spec, saved.bytes if saved is not None else None)
    return Plan(effects=(CreateObject(row.build(context.job, spec, wanted, entry.name, entry.step, memory)),))


def looks(row: Consumer[E, S], seen: Watched, child: Requirements, *, asked: bool = False) -> Requirements:
    """Require the snapshot if one may be due or is under way, and the child of that."""
    if not seen.began or (row.under_way(seen.status) is None and not asked and not row.is_stated(seen)):
        return NOTHING
    return replace(child, snapshot_name=seen.resolved.snapshot_name)
