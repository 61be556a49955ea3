"""Keep the evidence of an ended attempt, before its pods are gone: one write to the job's evidence ConfigMap.

The closed attempt in the status is the intent, and the entry in the ConfigMap its own proof: nothing else is kept.
Evidence is best effort with a deadline: an attempt that ended longer ago is not looked at any more, and a failure
meanwhile delays the next step no longer than that.
"""

from __future__ import annotations

from datetime import datetime

from rljob.api.status import Attempt, RLJobStatus
from rljob.core import times
from rljob.core.attempts.evidence import evidence_of
from rljob.core.context import Context
from rljob.core.observed import Unseen
from rljob.core.plan import KeepEvidence, Plan
from rljob.core.requirements import Evidence, Requirements
from rljob.core.step import guarded, step
from rljob.core.watched import Watched
from rljob.render import evidence, names

RECORD_SECONDS = 60.0


def just_ended(current: RLJobStatus, now: datetime) -> Attempt | None:
    """Return the last attempt if it ended so recently that its evidence is still collected."""
    last = current.attempts[-1] if current.attempts else None
    if last is None or last.end_time is None or now >= times.after(last.end_time, RECORD_SECONDS):
        return None
    return last


def _evidence(seen: Watched) -> Requirements:
    ended = guarded(just_ended(seen.status, seen.now))
    name = names.evidence_name(seen.job)
    return Requirements(evidence=Evidence(name, evidence.key_of(ended.number), ended.cluster_name))


@step(_evidence, when=lambda seen: seen.began and just_ended(seen.status, seen.now) is not None)
def keep_evidence(context: Context) -> Plan | None:
    """Record the evidence of the last attempt, once."""
    attempt, found = guarded(just_ended(context.status, context.now)), context.observed.evidence
    if isinstance(found, Unseen):
        return None
    if found is not None and (not context.made(found) or evidence.has_entry(found, evidence.key_of(attempt.number))):
        return None
    clusters = (c for c in context.observed.clusters if c["metadata"]["name"] == attempt.cluster_name)
    entry = evidence_of(attempt, context.status, next(clusters, None), context.observed.pods, context.observed.warnings)
    return Plan(effects=(KeepEvidence(evidence.build_evidence(context.job, found, attempt.number, entry)),))
