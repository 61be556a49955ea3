"""Making the children of a job before its cluster runs: what the cluster's rules forbid for now is told, and tried on.

A quota comes free and a policy is mended, so such a child is asked for again, with the queue's backoff, until the start
deadline. A wrong manifest or a taken name stays what it is: those end the job (`finishing.give_up_refused`).
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.status import Condition, ConditionStatus, ConditionType, State
from rljob.core import status, times
from rljob.core.context import Context
from rljob.core.observed import Refusal, RefusalCause
from rljob.core.plan import CreateObject, CreateToken, EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.steps.restarting import give_up

Creation = CreateObject | CreateToken


def make(context: Context, *children: Creation) -> Plan:
    """Make children, after it is told that one of them was refused."""
    return tell_refused(context, *children) or Plan(effects=still_to_make(context, *children))


def still_to_make(context: Context, *children: Creation) -> tuple[Creation, ...]:
    """Give the child that was refused and those after it: it was asked for when the ones before it had been made.

    A quota that is used up refuses what is there as well, so that these would hide what is missing.
    """
    denied = {_words_about(refusal) for refusal in _denied(context)}
    first = next((index for index, child in enumerate(children) if _about(child) in denied), 0)
    return children[first:]


def tell_refused(context: Context, *children: Creation) -> Plan | None:
    """Tell once that one of these children was refused; give up at the start deadline."""
    wanted = {_about(child) for child in children}
    refusal = next((refusal for refusal in _denied(context) if _words_about(refusal) in wanted), None)
    return None if refusal is None else _tell(context, refusal)


def _denied(context: Context) -> Iterator[Refusal]:
    return (refusal for refusal in context.observed.refusals if refusal.cause is RefusalCause.DENIED)


def is_told_of_another(context: Context, *children: Creation) -> bool:
    """Whether the last word is about a child that was refused, and is made by now, since these come after it."""
    told = _told(context)
    return told is not None and not told.message.startswith(tuple(map(_about, children)))


def _tell(context: Context, refusal: Refusal) -> Plan | None:
    about, told = _words_about(refusal), _told(context)
    known = told is not None and told.message.startswith(about)
    # Each refusal may have other words, as of what is used of a quota: the first ones tell all.
    message = told.message if told is not None and known else about + refusal.why
    late = context.now >= times.from_text(context.intent.start_deadline)
    if late and known:
        return give_up(context, Reason.START_DEADLINE_EXCEEDED, f"{Reason.CHILD_REFUSED}: {message}")
    kind, state = _place(context)
    # An initializer before this child may have taken hours.
    new = context.status.model_copy(update={"intent": context.timed_anew()}) if late else context.status
    new = context.writer.with_condition(new, kind, ConditionStatus.FALSE, Reason.CHILD_REFUSED, message)
    new = context.writer.summarised(new, state, Reason.CHILD_REFUSED, message)
    plan = context.write(new, EventNote(EventType.WARNING, Reason.CHILD_REFUSED, status.bounded(message)))
    return None if plan.empty else plan


def _told(context: Context) -> Condition | None:
    kind, _ = _place(context)
    told = status.condition(context.status, kind)
    return told if told is not None and told.reason == Reason.CHILD_REFUSED else None


def _place(context: Context) -> tuple[ConditionType, State]:
    """Say which condition tells of it, and in which state the job is."""
    if status.is_true(context.status, ConditionType.INITIALIZED):
        return ConditionType.CLUSTER_READY, State.STARTING
    return ConditionType.INITIALIZED, State.PENDING


def _about(child: Creation) -> str:
    return f"{child.manifest['kind']} {child.manifest['metadata']['name']}: "


def _words_about(refusal: Refusal) -> str:
    return f"{refusal.kind} {refusal.name}: "
