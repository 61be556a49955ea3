"""Run the initializers, before any NPU is held."""

from __future__ import annotations

from rljob.api.sources import Initializer
from rljob.api.status import ConditionStatus, ConditionType, RLJobStatus, State
from rljob.api.under_way import InitializerStatus
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core import status, times
from rljob.core.attempts.start_diagnosis import PROBLEMS, Diagnosis, StartReason, creation_failure, diagnose
from rljob.core.context import Context
from rljob.core.manifest_facts import has_condition
from rljob.core.observed import Manifest, Unseen
from rljob.core.plan import CreateObject, EventNote, EventType, Plan
from rljob.core.polling import LOOK_AGAIN_SECONDS
from rljob.core.reasons import Reason
from rljob.core.requirements import STOPS_HERE, Pods, Requirements
from rljob.core.step import step
from rljob.core.transitions.children import create
from rljob.core.transitions.conclusions import fail, give_up
from rljob.core.transitions.conditions import with_cluster_begun
from rljob.core.watched import Watched
from rljob.render import labels, names
from rljob.render.initializer import SKIPPED, build_initializer, initializers

INITIALIZER_POLL_SECONDS = 3.0
LOG_SECONDS = 10.0
"""Shortest interval between two reads of an initializer's log: a new line is also a status write."""
LINE_CHARACTERS = 200
"""Characters kept of an initializer's last line: it is part of a condition's message."""


def _jobs(seen: Watched) -> Requirements:
    """Require the initializers' Jobs and pods, and from time to time the log of the one that runs."""
    if not seen.resolved.initializers:
        return STOPS_HERE
    reported = seen.status.initializer
    return Requirements(
        initializer_names=tuple(seen.resolved.initializers),
        pods=Pods(f"{labels.JOB_UID}={seen.job.uid},{labels.INITIALIZER}"),
        initializer_events=True,
        initializer_log=reported is None
        or not reported.line
        or seen.now >= times.after(reported.observed_time, LOG_SECONDS),
        stops_here=True,
    )


def _initializes(seen: Watched) -> bool:
    return seen.cluster is None and not status.is_true(seen.status, ConditionType.INITIALIZED)


@step(_jobs, when=_initializes)
def initialize(context: Context) -> Plan:
    """Run the initializers one after another; when the last one succeeds, the cluster can begin."""
    spec = context.frozen_spec
    if spec is None:
        raise AssertionError("freeze_spec lets no job without a snapshot pass")
    for initializer in initializers(spec):
        name = names.initializer_name(context.job, initializer.name)
        if name not in context.observed.initializers:
            return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
        found = context.observed.initializers[name]
        if found is None:
            return create(context, CreateObject(build_initializer(context.job, spec, initializer)))
        if not context.made(found):
            return fail(context, Reason.NAME_TAKEN, f"Job {name} was not created by this operator; delete it")
        if has_condition(found, "Complete") is None:
            return _await_initializer(context, spec, initializer, found)
    return _initialized(context)


def _await_initializer(context: Context, spec: RLJobSpec, initializer: Initializer, found: Manifest) -> Plan:
    pods = context.observed.pods if not isinstance(context.observed.pods, Unseen) else ()
    # The selector matches the pods of all initializers; a failed try of an earlier one is irrelevant for this one.
    own = (pod for pod in pods if pod["metadata"]["labels"][labels.INITIALIZER] == initializer.name)
    diagnosis = diagnose(own, injected_image=spec.runtime.injected_image)
    condition, before = status.condition(context.status, ConditionType.INITIALIZED), context.status.initializer
    same = before is not None and before.name == initializer.name
    # Each try names another pod: the first words stay.
    refused = condition if condition is not None and same and condition.reason == StartReason.PODS_REFUSED else None
    if diagnosis.reason is StartReason.NO_PODS:
        kept = diagnosis if refused is None else Diagnosis(StartReason.PODS_REFUSED, "")
        diagnosis = creation_failure(context.observed.initializer_events) or kept
    problem = diagnosis.reason in PROBLEMS
    if (failure := has_condition(found, "Failed")) is not None:
        message = f"initializer {initializer.name}: {failure}" + (
            f"; {diagnosis.message}" if problem and diagnosis.message else ""
        )
        return fail(context, Reason.INITIALIZER_FAILED, message)
    reason = diagnosis.reason.value if problem else Reason.INITIALIZER_RUNNING.value
    brief = f"initializer {initializer.name}" + (f": {diagnosis.message}" if problem else " is running")
    if refused is not None and diagnosis.reason is StartReason.PODS_REFUSED:
        brief = refused.message
    # A further line of the log, or another pod with the same problem, deserves no event.
    known = condition is not None and condition.reason == reason and same
    note = EventNote(EventType.WARNING if problem else EventType.NORMAL, reason, brief)
    current = context.status
    if diagnosis.reason is StartReason.PODS_REFUSED and context.is_late:
        if known and not isinstance(context.observed.pods, Unseen):
            return give_up(context, Reason.START_DEADLINE_EXCEEDED, f"{reason}: {brief}")
        # An initializer before this one may have taken hours.
        current = current.model_copy(update={"intent": context.timed_anew()})
    running = _heard(context, initializer)
    message = brief if problem or not running.line else f"{brief}: {running.line}"
    new = current.model_copy(update={"initializer": running})
    new = context.writer.with_condition(new, ConditionType.INITIALIZED, ConditionStatus.FALSE, reason, message)
    new = context.writer.summarised(new, State.INITIALIZING, reason, message)
    return context.write(new, *(() if known else (note,)), requeue=INITIALIZER_POLL_SECONDS)


def _heard(context: Context, initializer: Initializer) -> InitializerStatus:
    """Return the initializer that runs with its last line: that of its log now, or the one recorded before."""
    reported, log = context.status.initializer, context.observed.initializer_log
    line = "" if isinstance(log, Unseen) else last_line(log)
    if reported is not None and reported.name == initializer.name and line in ("", reported.line):
        return reported
    return InitializerStatus(name=initializer.name, line=line, observed_time=times.to_text(context.now))


def last_line(log: str) -> str:
    """Return the last line that is not empty; a progress bar writes many texts into one line, one over the other."""
    lines = [" ".join("".join(c if c.isprintable() else " " for c in line).split()) for line in log.splitlines()]
    return next((line[:LINE_CHARACTERS] for line in reversed(lines) if line), "")


def _initialized(context: Context) -> Plan:
    # startSeconds counts from here: an initializer has its own limit.
    new: RLJobStatus = context.status.model_copy(update={"intent": context.timed_anew(), "initializer": None})
    new = context.writer.with_condition(
        new, ConditionType.INITIALIZED, ConditionStatus.TRUE, Reason.INITIALIZED, _skipped(context)
    )
    return context.write(with_cluster_begun(context, new))


def _skipped(context: Context) -> str:
    """Return which initializers found their work done, by the termination messages of their containers."""
    pods = context.observed.pods if not isinstance(context.observed.pods, Unseen) else ()
    said = set()
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            message = str(((container.get("state") or {}).get("terminated") or {}).get("message") or "").strip()
            if message.startswith(SKIPPED):
                said.add(f"{pod['metadata']['labels'][labels.INITIALIZER]} {message}")
    return "; ".join(sorted(said))
