"""spec.suspend: the run is asked to save and stop, its cluster goes, and a later generation goes on from there.

A stop is written down with its deadline before anything is asked, and it always completes, even if spec.suspend is
taken back meanwhile: the attempt is closed, the clusters are deleted, and when no pod is left the generation has ended.
"""

from __future__ import annotations

from datetime import timedelta

from rljob.api.status import AttemptOutcome, ConditionStatus, ConditionType, RLJobStatus, State, StopStatus
from rljob.core import clock
from rljob.core.observed import Unseen
from rljob.core.plan import EventNote, EventType, Plan, StopRun
from rljob.core.reasons import Reason
from rljob.core.steps.finishing import close_attempt, delete_cluster, end
from rljob.core.steps.running import outcome_seen, progress_seen, with_progress
from rljob.core.view import LOOK_AGAIN_SECONDS, View
from rljob_runtime.contract import ExitCode, Outcome, Phase, StopMode

MODES = {"Auto": StopMode.AFTER_STEP, **{mode.value: mode for mode in StopMode}}
"""Auto means the gentlest: measured stage times do not decide yet."""


def begin_stop(view: View) -> Plan | None:
    """Write down that the run is to stop, and until when it may save."""
    if not view.suspend or not view.active or view.status.stop is not None:
        return None
    mode, grace = MODES[view.stop.mode], 0
    saves = view.frozen_spec is not None and view.frozen_spec.checkpoint is not None
    if view.open_attempt is not None and saves and mode is not StopMode.IMMEDIATE:
        grace = view.stop.grace_seconds
    stop = StopStatus(
        reason=Reason.SUSPENDED,
        mode=mode.value,
        requested_time=clock.to_text(view.now),
        deadline=clock.to_text(view.now + timedelta(seconds=grace)),
    )
    message = f"the run may save until {stop.deadline}" if grace else "nothing runs that could save"
    new = view.status.model_copy(update={"stop": stop})
    new = view.writer.with_condition(
        new, ConditionType.SUSPENDED, ConditionStatus.FALSE, Reason.SUSPENDING, message if grace else ""
    )
    new = view.writer.summarised(new, State.STOPPING, Reason.SUSPENDING, message)
    return view.write(new, EventNote(EventType.NORMAL, Reason.SUSPENDING, message))


def await_end(view: View) -> Plan | None:
    """Ask the run to stop until it has ended or its time is over, then close its attempt."""
    stop = view.status.stop
    if stop is None or view.open_attempt is None:
        return None
    answer = progress_seen(view)
    outcome = outcome_seen(view, answer)
    if outcome is not None and outcome.exit_code == ExitCode.DONE:
        return end(with_progress(view, answer), view, outcome)
    if outcome is None and view.head_is_intended and view.now < clock.from_text(stop.deadline):
        asked = answer is None or answer.phase is Phase.STOPPING
        return Plan(effects=() if asked else (_request(view, stop),), requeue_after_seconds=LOOK_AGAIN_SECONDS)
    return view.write(_closed(view, with_progress(view, answer), outcome))


def _request(view: View, stop: StopStatus) -> StopRun:
    pod, intent = view.observed.head_pod, view.intent
    if pod is None:
        raise AssertionError("await_end asks an intended head only")
    return StopRun(
        pod_ip=str(pod["status"]["podIP"]),
        pod_uid=pod["metadata"]["uid"],
        job_uid=view.job.uid,
        cluster_name=intent.cluster_name,
        attempt=intent.attempt,
        mode=StopMode(stop.mode),
    )


def _closed(view: View, current: RLJobStatus, outcome: Outcome | None) -> RLJobStatus:
    """Close the attempt; one that failed on the way says so, and the next one begins at its last checkpoint."""
    last_step = current.progress.step if current.progress else 0
    if outcome is None or outcome.exit_code == ExitCode.STOPPED:
        message = outcome.message if outcome else "its time to save was over, or there was nothing to wait for"
        stopped = Outcome(ExitCode.STOPPED, Reason.SUSPENDED, message, last_step=last_step)
        return close_attempt(current, view, stopped, AttemptOutcome.STOPPED)
    return close_attempt(current, view, outcome, AttemptOutcome.FAILED)


def tear_down(view: View) -> Plan | None:
    """Delete the clusters, and wait until no pod is left: only then are the NPUs free."""
    if view.status.stop is None:
        return None
    known = {cluster["metadata"]["uid"]: cluster for cluster in view.observed.clusters}
    live = view.observed.live_cluster
    if isinstance(live, dict) and view.made(live):
        known.setdefault(live["metadata"]["uid"], live)
    doomed = tuple(delete_cluster(c) for c in known.values() if "deletionTimestamp" not in c["metadata"])
    if doomed:
        return Plan(effects=doomed, requeue_after_seconds=LOOK_AGAIN_SECONDS)
    # What was not looked at counts as there.
    if known or isinstance(live, Unseen) or isinstance(view.observed.pods, Unseen) or view.observed.pods:
        return Plan(requeue_after_seconds=LOOK_AGAIN_SECONDS)
    new = view.status.model_copy(
        update={"stop": None, "ray_cluster": None, "intent": view.intent.model_copy(update={"ended": True})}
    )
    for kind in (ConditionType.CLUSTER_READY, ConditionType.PROGRESSING):
        if any(entry.type == kind for entry in new.conditions):
            new = view.writer.with_condition(new, kind, ConditionStatus.FALSE, Reason.SUSPENDED)
    return view.write(_suspended(view, new), EventNote(EventType.NORMAL, Reason.SUSPENDED, "the NPUs are free"))


def hold(view: View) -> Plan | None:
    """Make nothing for a job that is to wait."""
    if not view.suspend or view.active:
        return None
    return view.write(_suspended(view, view.status))


def _suspended(view: View, current: RLJobStatus) -> RLJobStatus:
    new = view.writer.with_condition(current, ConditionType.SUSPENDED, ConditionStatus.TRUE, Reason.SUSPENDED)
    return view.writer.summarised(new, State.SUSPENDED, Reason.SUSPENDED, "set spec.suspend to false to go on")
