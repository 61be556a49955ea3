"""A start whose containers end in the same way again and again ends with its cause, and not at the deadline."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import (
    Json,
    at,
    cluster,
    decide,
    job,
    pod,
    requests,
    saving,
    seen,
    small_spec,
    snapshot,
    status_initialized,
    status_training,
    wrote,
)

from rljob.api.status import AttemptOutcome, FailureCause, State
from rljob.core import times
from rljob.core.observed import UNSEEN, Observed, Unseen
from rljob.core.plan import Plan
from rljob.render import labels
from rljob.render.accelerator_table import OPERATOR_IMAGE

LINE = "/bin/bash: line 1: ray: command not found"
CAUSE = f"Error, exit code 127: {LINE}"


def head(seconds: float, number: int = 1, **more: object) -> Json:
    """Return a head pod whose Ray container ended."""
    told = {"exitCode": 127, "reason": "Error", "message": LINE, "finishedAt": times.to_text(at(seconds)), **more}
    made = pod(f"head-{number}", f"uid-{number}", ready=False, phase="Failed")
    made["metadata"]["labels"] = {"ray.io/node-type": "head"}
    made["status"]["containerStatuses"] = [{"name": "ray-head", "state": {"terminated": told}}]
    return made


def starting(status: Json | None = None, pods: tuple[Json, ...] | Unseen = (), **facts: object) -> Observed:
    subject = job(status=status if status is not None else status_initialized())
    return seen(subject, **{"clusters": (cluster(),), "pods": pods, **facts})


def as_json(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


def after(*seconds: float, status: Json | None = None) -> Plan:
    """Return the decision after heads that ended at these times, one after another."""
    plan = Plan(status=status or status_initialized())
    for number, moment in enumerate(seconds):
        plan = decide(starting(as_json(plan), (head(moment, number),)), moment + 1)
    return plan


def test_each_end_is_counted_and_reported_with_exit_code_and_last_lines() -> None:
    once = after(20)
    assert (wrote(once).state, wrote(once).reason) == (State.STARTING, "ContainerFailed")
    assert wrote(once).message == f"container ray-head of the head pod ended once before it was ready: {CAUSE}"
    assert [note.reason for note in once.events] == ["ContainerFailed"]
    twice = after(20, 40)
    assert wrote(twice).message == f"container ray-head of the head pod ended twice before it was ready: {CAUSE}"
    (counted,) = wrote(twice).intent.container_failures  # type: ignore[union-attr]
    assert (counted.count, counted.exit_code, counted.container) == (2, 127, "ray-head")


def test_the_third_identical_end_ends_the_job_as_a_failure_of_its_configuration() -> None:
    plan = after(20, 40, 60)
    status = wrote(plan)
    assert (status.state, status.reason) == (State.FAILED, "ContainerCannotStart")
    assert CAUSE in str(status.message)
    assert "spec.runtime.image needs bash" in str(status.message)
    assert CAUSE in status.conditions[-1].message
    (attempt,) = status.attempts
    assert (attempt.outcome, attempt.cause) == (AttemptOutcome.LOST, FailureCause.CONFIGURATION)
    assert attempt.reason == "ContainerCannotStart"


def test_a_helper_of_an_injected_runtime_blames_the_operators_image() -> None:
    status = status_initialized()
    for number, seconds in enumerate((20.0, 40.0, 60.0)):
        waits = head(seconds, number)
        waits["status"]["containerStatuses"][0]["name"] = "rljob-runtime"
        found = starting(status, (waits,), clusters=(cluster(annotations={labels.RUNTIME_IMAGE: OPERATOR_IMAGE}),))
        status = as_json(decide(found, seconds + 1))
    assert f"the container runs the operator's image {OPERATOR_IMAGE}" in str(status["message"])


def test_restarts_do_not_repeat_it() -> None:
    restart = {"maxRestarts": 5, "maxInfrastructureRestarts": 5}
    spec = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "restart": restart}))
    status = status_initialized(spec)
    status["intent"]["containerFailures"] = as_json(after(20, 40))["intent"]["containerFailures"]
    plan = decide(replace(starting(pods=(head(60, 3),)), job=job(spec, status), snapshot=snapshot(spec)), 61)
    assert wrote(plan).state is State.FAILED
    assert "another attempt would end the same way" in str(wrote(plan).message)


def test_heads_that_the_watch_showed_last_and_events_of_kuberay_count_too() -> None:
    gone = starting(as_json(after(20)), ended_heads=(head(40, 2),))
    twice = decide(gone, 41)
    assert "twice" in str(wrote(twice).message)
    ran = "StartedAt:2026-01-01 12:00:59 +0000 UTC,FinishedAt:2026-01-01 12:01:00 +0000 UTC"
    told = f"&ContainerStateTerminated{{ExitCode:127,Signal:0,Reason:Error,Message:{LINE},{ran},ContainerID:,}}"
    note = (
        "Deleted head Pod team/head-3; Pod status: Failed; Pod restart policy: Never; Ray container terminated "
        f"status: {told}"
    )
    event = {"metadata": {"name": "e", "creationTimestamp": times.to_text(at(61))}, "note": note}
    third = decide(starting(as_json(twice), pods=UNSEEN, cluster_events=(event,)), 62)
    assert wrote(third).reason == "ContainerCannotStart"


def test_the_head_of_the_watch_counts_before_the_pods_are_listed() -> None:
    plan = decide(starting(pods=UNSEEN, head_pod=head(20)), 21)
    assert wrote(plan).reason == "ContainerFailed"


def test_the_same_end_is_written_once_and_what_follows_does_not_hide_it() -> None:
    status = as_json(after(20, 40))
    assert decide(starting(status, (head(40, 1),)), 42).status is None
    waits = pod("head-3", "uid-3", ready=False)
    again = decide(starting(status, (waits,)), 400)
    assert again.status is None, "still the condition that names the cause"
    unscheduled = pod("head-3", ready=False, conditions=[{"type": "PodScheduled", "status": "False"}])
    assert wrote(decide(starting(status, (unscheduled,)), 400)).reason == "PodUnschedulable"


def test_the_cause_is_in_the_message_of_the_start_deadline() -> None:
    waits = pod("head-3", "uid-3", ready=False)
    late = decide(starting(as_json(after(20, 40)), (waits,)), 1800)
    assert wrote(late).reason == "StartDeadlineExceeded"
    assert f"ContainerFailed: container ray-head of the head pod ended twice before it was ready: {CAUSE}" in str(
        wrote(late).message
    )


def test_a_job_that_has_run_proves_its_image_and_is_decided_by_the_deadline() -> None:
    ran = status_training()["attempts"][0] | {"endTime": times.to_text(at(0)), "startTime": times.to_text(at(0))}
    ran |= {"submissionId": "earlier", "submissionID": "earlier"}
    plan = after(20, 40, 60, 80, status=status_initialized() | {"attempts": [ran]})
    assert plan.status is None, "nothing is counted beyond what decides"
    third = after(20, 40, 60, status=status_initialized() | {"attempts": [ran]})
    assert wrote(third).reason == "ContainerFailed"
    assert "at least 3 times" in str(wrote(third).message)


@pytest.mark.parametrize("waits", ["queued", "suspended", "ready", "submitted"])
def test_a_cluster_that_does_not_start_counts_nothing(waits: str) -> None:
    status, owner, ready = status_initialized(), cluster(), pod()
    if waits == "queued":
        told = {"type": "ClusterReady", "status": "False", "reason": "WaitingForQueue", "message": ""}
        told |= {"lastTransitionTime": times.to_text(at(0))}
        others = [each for each in status["conditions"] if each["type"] != "ClusterReady"]
        status = status | {"conditions": [*others, told]}
    elif waits == "suspended":
        owner["spec"]["suspend"] = True
    elif waits == "ready":
        owner = cluster(ready=1)
    else:
        status = status_training()
    heads = {"head_pod": ready} if waits in ("ready", "submitted") else {}
    plan = decide(starting(status, (head(20),), clusters=(owner,), **heads), 21)
    counted = (as_json(plan) if plan.status else status)["intent"].get("containerFailures", [])
    assert counted == []


def test_the_count_ends_when_the_attempt_is_intended() -> None:
    status = as_json(after(20, 40))
    ready = pod()
    plan = decide(starting(status, clusters=(cluster(ready=1),), head_pod=ready, pods=UNSEEN), 200)
    intent = wrote(plan).intent
    assert intent is not None
    assert (intent.attempt, intent.container_failures) == (1, [])


@pytest.mark.parametrize(("known", "counted"), [(True, 1), (False, 0)])
def test_an_init_container_that_ended_counts_before_its_pod_has_failed(*, known: bool, counted: int) -> None:
    found = head(20)
    found["status"] |= {"phase": "Pending", "initContainerStatuses": found["status"].pop("containerStatuses")}
    found["status"]["initContainerStatuses"][0] |= {"name": "warm" if known else "exporter"}
    found["status"]["initContainerStatuses"][0]["state"]["terminated"] |= {"exitCode": 1, "message": "no disk"}
    plan = decide(starting(pods=(found,)), 21)
    failures = wrote(plan).intent.container_failures if plan.status else []  # type: ignore[union-attr]
    assert len(failures) == counted


def test_pods_that_fail_are_looked_at_often_because_each_shows_its_cause_only_for_a_moment() -> None:
    status, waits = as_json(after(20)), pod("head-3", "uid-3", ready=False)
    plan = decide(starting(status, (waits,)), 1200)
    assert (plan.status, plan.requeue_after_seconds) == (None, 5.0)
    asked = requests(job(status=status), (cluster(),), None, at(1200)).pods
    assert asked is not None
    assert asked.every_seconds == 5.0
    asked = requests(job(status=status_initialized()), (cluster(),), None, at(1200)).pods
    assert asked is not None
    assert asked.every_seconds == 60.0


def test_the_ends_of_pods_are_asked_for_while_the_cluster_starts() -> None:
    subject = job(status=status_initialized())
    assert requests(subject, (cluster(),), None, at(60)).pod_ends
    young = cluster(creationTimestamp=times.to_text(at(55)))
    assert not requests(subject, (young,), None, at(60)).pod_ends
    assert not requests(subject, (cluster(ready=1),), pod(), at(60)).pod_ends
