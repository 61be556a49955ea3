"""Between two attempts: wait for the backoff, and end a job whose time is used up."""

from __future__ import annotations

from rljob.core import times
from rljob.core.context import Context
from rljob.core.plan import Plan
from rljob.core.reasons import Reason
from rljob.core.step import step
from rljob.core.transitions.conclusions import fail


@step()
def end_overdue(context: Context) -> Plan | None:
    """Start no attempt when deadlines.activeSeconds leaves no time for it: its NPUs would be held for nothing."""
    limit, used = context.deadlines.active_seconds, context.status.usage.attempt_seconds
    if not limit or used < limit or (context.active and context.intent.attempt > 0):
        return None
    message = f"deadlines.activeSeconds {limit} passed: the attempts so far took {used} s"
    return fail(context, Reason.ACTIVE_DEADLINE_EXCEEDED, message)


@step()
def back_off(context: Context) -> Plan | None:
    """Wait until the next attempt is due; the old cluster is gone by now, or waits for its next driver."""
    begin = context.status.next_attempt_time
    if begin is None or (context.active and context.intent.attempt > 0):
        return None
    wait = (times.from_text(begin) - context.now).total_seconds()
    if wait <= 0:
        return None
    return Plan(requeue_after_seconds=wait)
