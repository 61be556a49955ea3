"""Whether the spec is right: wait for its recipes, report every violation, wait for the job that it continues."""

from __future__ import annotations

from rljob.api.status import ConditionStatus, ConditionType, State
from rljob.core import status
from rljob.core.context import Context
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.requirements import Requirements
from rljob.core.spec.checkpoint_source import FIELD, find_source
from rljob.core.spec.recipes import chain_ids
from rljob.core.step import step
from rljob.core.validation.accelerator import class_violations
from rljob.core.validation.violation import Violation

SOURCE_POLL_SECONDS = 30.0
"""The other job is looked up in the store, so this costs no request."""


@step()
def await_recipes(context: Context) -> Plan | None:
    """Report that a recipe of the job is of a kind that cannot be read, and wait."""
    if not _takes_spec(context) or not context.reads_recipes_anew:
        return None
    chain = chain_ids(context.raw_spec, context.observed.recipes.get)
    if not chain or chain[-1] in context.observed.recipes or chain[-1].kind not in context.observed.unreadable:
        return None
    message = f"spec.recipeRef: {chain[-1]} cannot be read: {context.observed.unreadable[chain[-1].kind]}"
    return _refuse(context, Reason.RECIPE_UNREADABLE, message)


@step()
def validate_spec(context: Context) -> Plan | None:
    """Refuse an invalid spec with every violation; a cluster generation that began keeps its frozen spec."""
    violations = context.next_violations
    if not violations or not _takes_spec(context):
        violations = _lost_class(context) or _open_ray(context)
    if not violations:
        return None
    return _refuse(context, Reason.INVALID_SPEC, "; ".join(str(violation) for violation in violations))


def _lost_class(context: Context) -> tuple[Violation, ...]:
    """Return a violation if the accelerator class of the frozen spec was removed; an admin can add it again."""
    spec = context.frozen_spec
    return () if spec is None or context.active else tuple(class_violations(spec))


def _open_ray(context: Context) -> tuple[Violation, ...]:
    """Return a violation if no policy would close the ports of a Ray without tokens, or judge whether it may run."""
    spec, namespace = context.checked.spec if _takes_spec(context) else context.frozen_spec, context.job.namespace
    asks = spec is not None and spec.runtime.unauthenticated_ray
    if not asks or context.active or context.observed.namespace_is_closed:
        return ()
    message = (
        f"no NetworkPolicy closes the ports of jobs in namespace {namespace}; use an image with Ray 2.52.0 or later, "
        f"or ask an administrator to add {namespace} to networkPolicy.jobs.namespaces of the chart, with "
        "policies.enabled"
    )
    return (Violation("spec.runtime.unauthenticatedRay", message),)


# With a cluster under way, the checkpoint is frozen with it.
@step(Requirements(siblings=True), when=lambda seen: not seen.active)
def await_source(context: Context) -> Plan | None:
    """Wait for the job whose checkpoint this one starts from: starting at step 0 instead would waste the NPUs."""
    lost = context.status.intent is None
    spec = context.frozen_spec if lost and context.frozen_spec else context.checked.spec
    if spec is None or (lost and context.observed.clusters):
        return None
    found = find_source(spec, context.observed.siblings, context.status.resolved)
    if found is None or not found.problem:
        return None
    message = f"spec.{FIELD}: {found.problem}"
    new = context.writer.with_condition(
        context.status, ConditionType.VALIDATED, ConditionStatus.FALSE, Reason.SOURCE_MISSING, message
    )
    new = context.writer.summarised(new, State.PENDING, Reason.SOURCE_MISSING, message)
    return context.write(new, EventNote(EventType.WARNING, Reason.SOURCE_MISSING, message), requeue=SOURCE_POLL_SECONDS)


def _takes_spec(context: Context) -> bool:
    """Report whether the next generation takes the spec as it is now: not after a lost status with a snapshot."""
    if context.status.intent is None:
        return context.frozen is None
    # A restart at night continues with the frozen spec rather than wait for somebody to correct an edit.
    if context.restarts_by_itself and context.frozen is not None:
        return False
    return context.status.intent.ended and not context.suspend


def _refuse(context: Context, reason: Reason, message: str) -> Plan:
    new = context.writer.with_condition(context.status, ConditionType.VALIDATED, ConditionStatus.FALSE, reason, message)
    new = context.writer.summarised(new, State.INVALID, reason, message)
    return context.write(new, EventNote(EventType.WARNING, reason, status.bounded(message)))
