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
from rljob.core.requirements import STOPS_HERE
from rljob.core.step import step
from rljob.core.watched import Watched
from rljob.render.labels import PAUSED

MESSAGE = f'the annotation {PAUSED} is "true": the operator does nothing for this job until it is removed'


def _is_reported(seen: Watched) -> bool:
    return status.is_true(seen.status, ConditionType.PAUSED)


@step(STOPS_HERE, when=lambda seen: is_paused(seen.manifest) or _is_reported(seen))
def keep_off(context: Context) -> Plan:
    """Do nothing for a paused job after reporting the pause; report its end."""
    paused = is_paused(context.manifest)
    if paused and _is_reported(context):
        return Plan()
    value, reason = (ConditionStatus.TRUE, Reason.PAUSED) if paused else (ConditionStatus.FALSE, Reason.UNPAUSED)
    message = MESSAGE if paused else ""
    new = context.writer.with_condition(context.status, ConditionType.PAUSED, value, reason, message)
    return context.write(new, EventNote(EventType.NORMAL, reason, message or "the operator manages this job again"))
