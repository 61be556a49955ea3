"""What an earlier life of the job left: its snapshot is read first, and a job that had finished stays finished."""

from __future__ import annotations

from rljob.api.status import ConditionStatus, ConditionType
from rljob.core.context import Context
from rljob.core.observed import Unseen
from rljob.core.plan import Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.requirements import snapshot
from rljob.core.step import step
from rljob.core.transitions.attempts import with_recalled
from rljob.core.transitions.final_conditions import with_final_conditions


@step(snapshot)
def recall(context: Context) -> Plan | None:
    """Wait for the snapshot before anything is decided: which spec the job uses, and whether it began at all."""
    found, resolved = context.observed.snapshot, context.status.resolved
    if found is None and resolved is not None and resolved.base_snapshot is not None:
        found = context.observed.base_snapshot
    return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS) if isinstance(found, Unseen) else None


@step()
def finish_again(context: Context) -> Plan | None:
    """Record again that the job had finished, if its status was lost: it is never started again."""
    final, ended = context.observed.final, context.observed.attempts
    if final is None or context.status.intent is not None or context.status.attempts or not ended:
        return None
    last = ended[-1]
    new = with_recalled(context.status, ended).model_copy(update={"finished_time": last.end_time})
    word = last.reason or final.value
    new = with_final_conditions(new, context.writer, word)
    new = context.writer.with_condition(
        new, ConditionType.FINISHED, ConditionStatus.TRUE, final.value, last.message or ""
    )
    return context.write(context.writer.summarised(new, final, word, last.message or ""))
