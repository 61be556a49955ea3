"""The annotation rljob.dev/paused: the operator leaves the job alone and reports so.

For repairs by hand and for debugging: nothing is created, deleted, submitted, requested or counted, and the run
continues. Deadlines are not paused: what they demand is done when the pause ends. A deletion is not delayed.
"""

from __future__ import annotations

from rljob.api.status import ConditionStatus, ConditionType
from rljob.core import status
from rljob.core.context import Context
from rljob.core.manifest_facts import is_paused
from rljob.core.plan import EventNote, EventType, Plan
from rljob.core.reasons import Reason
from rljob.core.requirements import NOTHING, STOPS_HERE, Requirements
from rljob.core.step import step
from rljob.core.watched import Watched
from rljob.render.labels import PAUSED

MESSAGE = f'the annotation {PAUSED} is "true": the operator does nothing for this job until it is removed'


def _paused(seen: Watched) -> Requirements:
    paused, told = is_paused(seen.manifest), status.is_true(seen.status, ConditionType.PAUSED)
    return STOPS_HERE if paused or told else NOTHING


@step(_paused)
def keep_off(context: Context) -> Plan | None:
    """Do nothing for a paused job after reporting the pause; report its end."""
    paused, told = is_paused(context.observed.job), status.is_true(context.status, ConditionType.PAUSED)
    if paused == told:
        return Plan() if paused else None
    value, reason = (ConditionStatus.TRUE, Reason.PAUSED) if paused else (ConditionStatus.FALSE, Reason.UNPAUSED)
    message = MESSAGE if paused else ""
    new = context.writer.with_condition(context.status, ConditionType.PAUSED, value, reason, message)
    return context.write(new, EventNote(EventType.NORMAL, reason, message or "the operator manages this job again"))
