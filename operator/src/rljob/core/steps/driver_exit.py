"""Close the attempt when its driver has ended; `transitions.driver_exit` explains whose report of the end counts."""

from __future__ import annotations

from rljob.core.context import Context
from rljob.core.plan import Plan
from rljob.core.transitions.driver_exit import await_exporter, close, outcome_by_ray, outcome_seen
from rljob.core.transitions.progress import with_progress


def close_without_head(context: Context) -> Plan | None:
    """Close the attempt by Ray's report of its end when the head pod, and the exporter with it, is gone."""
    if context.status.ending is None or context.head_is_intended:
        return None
    outcome = outcome_by_ray(context)
    if outcome is None:
        raise AssertionError("Ray's report is recorded in status.ending")
    return close(context, context.status, outcome)


def close_ended(context: Context) -> Plan | None:
    """Close the attempt once its outcome is known."""
    outcome = outcome_seen(context)
    return None if outcome is None else close(context, with_progress(context), outcome)


def await_report(context: Context) -> Plan | None:
    """Wait for the exporter's report of an end that only Ray has reported."""
    return await_exporter(context)
