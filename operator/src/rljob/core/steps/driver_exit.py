"""Close the attempt when its driver has ended; `transitions.reported_end` explains whose report of the end counts."""

from __future__ import annotations

from rljob.core.context import Context
from rljob.core.plan import Plan
from rljob.core.requirements import STOPS_HERE, Requirements, intended_head
from rljob.core.step import guarded, step
from rljob.core.transitions.progress import with_progress
from rljob.core.transitions.reported_end import await_exporter, close, outcome_by_ray, outcome_seen
from rljob.core.watched import Watched


def _pods_of_lost_head(seen: Watched) -> Requirements:
    """Require the pods that may explain the end that Ray reported."""
    return STOPS_HERE if seen.cluster is None else intended_head(seen) | STOPS_HERE


@step(_pods_of_lost_head, when=lambda seen: seen.status.ending is not None and not seen.head_is_intended)
def close_without_head(context: Context) -> Plan:
    """Close the attempt by Ray's report of its end when the head pod, and the exporter with it, is gone."""
    return close(context, context.status, guarded(outcome_by_ray(context)))


@step(intended_head)
def close_ended(context: Context) -> Plan | None:
    """Close the attempt once its outcome is known."""
    outcome = outcome_seen(context)
    return None if outcome is None else close(context, with_progress(context), outcome)


@step(intended_head)
def await_report(context: Context) -> Plan | None:
    """Wait for the exporter's report of an end that only Ray has reported."""
    return await_exporter(context)
