"""Report what a running job does not take: edits of its spec, edits of its recipes, another renderer.

Each is a condition that is True while there is something to report. It is written when that begins, changes or ends,
and has no other effect: the children of a running job are not touched.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rljob.api.status import ConditionStatus, ConditionType, ResolvedRecipe, RLJobStatus
from rljob.core import status
from rljob.core.context import Context
from rljob.core.observed import RecipeId
from rljob.core.plan import Plan
from rljob.core.reasons import Reason
from rljob.core.spec.mutability import differences, listed, training_hash
from rljob.core.step import step
from rljob.render import labels

KEEPS = "the job keeps the spec that it began with"
REFRESH = (
    f"set the annotation {labels.REFRESH} to a new value to let the next cluster generation read the recipes again"
)


@dataclass(frozen=True)
class Report:
    """A condition to report: True with a message, or False without."""

    reason: Reason = Reason.UP_TO_DATE
    message: str = ""

    @property
    def value(self) -> ConditionStatus:
        """True while there is something to report."""
        return ConditionStatus.FALSE if self.reason is Reason.UP_TO_DATE else ConditionStatus.TRUE


NOTHING = Report()


@step()
def report_changes(context: Context) -> Plan | None:
    """Update the three conditions in one write, or do nothing."""
    if context.status.resolved is None:
        return None
    new = context.status
    for kind, report in (
        (ConditionType.PENDING_CHANGES, _pending_changes(context)),
        (ConditionType.RECIPE_DRIFT, _recipe_drift(context)),
        (ConditionType.RENDERER_DRIFT, _renderer_drift(context)),
    ):
        new = _with_report(context, new, kind, report)
    return context.write_change(new)


def _with_report(context: Context, current: RLJobStatus, kind: ConditionType, report: Report | None) -> RLJobStatus:
    """Return the status with the condition if it differs; None: it cannot be judged now."""
    reported = status.condition(current, kind)
    if report is None or (reported is None and report == NOTHING):
        return current
    return context.writer.with_changed(current, kind, report.value, report.reason, report.message)


def _pending_changes(context: Context) -> Report | None:
    wanted, frozen = context.checked.spec, context.frozen_spec
    if violations := context.next_violations:
        return Report(Reason.INVALID_SPEC, f"{KEEPS}: " + "; ".join(map(str, violations)))
    if wanted is None:
        raise AssertionError("a spec without violations exists")
    if frozen is None:
        # Between the intent and the snapshot, or after somebody deleted the snapshot.
        same = training_hash(wanted) == context.resolved.spec_hash
        return NOTHING if same else Report(Reason.SPEC_CHANGED, f"{KEEPS}; {_takes_effect(context)}")
    changes = context.derived.differences.get(lambda: differences(frozen, wanted))
    return Report(Reason.SPEC_CHANGED, f"{listed(changes)}; {_takes_effect(context)}") if changes else NOTHING


def _takes_effect(context: Context) -> str:
    name = context.job.name
    how = (
        f"`rljob resume {name}`"
        if context.raw_spec.get("suspend") is True
        else f"`rljob restart {name}`, or a new value of the annotation {labels.RESTART}"
    )
    return f"the next cluster generation takes it: {how}"


def _recipe_drift(context: Context) -> Report | None:
    if any(taken.kind in context.observed.unreadable for taken in context.resolved.recipes):
        return None
    changes = [text for taken in context.resolved.recipes for text in _change(context, taken)]
    return Report(Reason.RECIPE_CHANGED, f"{'; '.join(changes)}; {KEEPS}; {REFRESH}") if changes else NOTHING


def _change(context: Context, taken: ResolvedRecipe) -> Iterator[str]:
    recipe = RecipeId(taken.kind, taken.name)
    found = context.observed.recipes.get(recipe)
    if found is None:
        yield f"{recipe} was deleted"
    elif found["metadata"].get("uid") != taken.uid:
        yield f"{recipe} was deleted and created again"
    elif found["metadata"].get("generation") != taken.generation:
        yield f"{recipe} changed from generation {taken.generation} to {found['metadata'].get('generation')}"


def _renderer_drift(context: Context) -> Report | None:
    if context.cluster is None:
        return None
    annotations = context.cluster["metadata"].get("annotations") or {}
    made_by, image = annotations.get(labels.RENDERER), context.accelerators.operator_image
    if made_by in (None, labels.RENDERER_VERSION):
        if annotations.get(labels.RUNTIME_IMAGE, image) == image:
            return NOTHING
        return Report(
            Reason.RUNTIME_CHANGED,
            f"the running cluster has the runtime of {annotations[labels.RUNTIME_IMAGE]}, this operator injects that "
            f"of {image}; {_takes_effect(context)}",
        )
    return Report(
        Reason.RENDERER_CHANGED,
        f"the running cluster was rendered by version {made_by}, this operator renders by version "
        f"{labels.RENDERER_VERSION}; {_takes_effect(context)}",
    )
