"""status.start: what a start is doing and did, at no write of its own."""

from __future__ import annotations

from dataclasses import replace

from builders import (
    NOW,
    Json,
    answer,
    at,
    cluster,
    decide,
    job,
    merged,
    pod,
    running,
    seen,
    small_spec,
    status_after,
    status_begun,
    status_initialized,
    status_intended,
    status_submitted,
    status_training,
    wrote,
)

from rljob.api.status import RLJobStatus
from rljob.core import status, times
from rljob.core.plan import Plan
from rljob.core.transitions.start_stages import with_reported, with_stage, with_training
from rljob_runtime.contract import PassedStage, Phase, StartProgress, StartStage


def names(document: Json) -> list[str]:
    found = status.read_status({"status": document}).start
    return [] if found is None else [stage.name for stage in found.stages]


def reported(document: Json, seconds: float = 60) -> Plan:
    start = StartProgress(
        StartStage.LOADING_MODEL,
        at(40).timestamp(),
        3,
        16,
        (PassedStage("Preparing", at(10).timestamp()), PassedStage("LoadingData", at(20).timestamp())),
    )
    told = answer({"phase": Phase.STARTING, "step": 0, "start": start})
    return decide(running(job=job(status=document), progress=told), seconds)


def test_a_start_goes_from_the_pods_over_the_stages_of_the_run_to_the_first_step() -> None:
    assert names(status_initialized()) == ["Pods"]
    assert names(status_intended()) == ["Pods", "Submitting"]
    plan = reported(status_submitted())
    assert names(status_after(plan)) == ["Pods", "Submitting", "Preparing", "LoadingData", "LoadingModel"]
    start = wrote(plan).start
    assert start is not None
    assert (start.stage, start.detail, start.since, start.observed_time) == (
        "LoadingModel",
        "3 of 16 ranks are done",
        times.to_text(at(40)),
        times.to_text(at(60)),
    )
    first = answer({"step": 1, "observed_time": at(90).timestamp()})
    trained = decide(running(job=job(status=status_after(plan)), progress=first), 95)
    assert names(status_after(trained))[-2:] == ["LoadingModel", "Training"]
    last = wrote(trained).start
    assert last is not None
    assert (last.detail, last.since) == ("", times.to_text(at(90)))


def test_further_steps_leave_the_start_alone() -> None:
    before = wrote(decide(running(progress=answer()))).start
    later = answer({"step": 9, "observed_time": at(100).timestamp()})
    assert wrote(decide(running(job=job(status=status_training()), progress=later), 100)).start == before


def test_initializers_come_before_the_pods() -> None:
    assert names(status_begun(small_spec({"initializers": [{"name": "a", "command": ["true"]}]}))) == ["Initializing"]


def test_pods_are_counted_when_something_else_is_written_and_only_then() -> None:
    waiting = {
        "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}]
    }
    worker = pod("worker", "worker-uid", ready=False, **waiting)
    world = seen(
        job(status=status_initialized()), clusters=(cluster(),), head_pod=pod(), pods=(pod(), worker)
    )  # fmt: skip
    told = decide(world, 100)
    start = wrote(told).start
    assert start is not None
    assert (start.stage, start.detail) == ("Pods", "1 of 2 are ready")
    same = replace(world, job=job(status=status_after(told)), head_pod=pod(ready=False))
    assert decide(same, 130).status is None, "another count alone is no write"


def test_a_queue_is_a_stage_and_the_pods_begin_after_it() -> None:
    queued = with_stage(with_stage(RLJobStatus(), "Pods", "a"), "Queued", "b")
    admitted = with_stage(queued, "Pods", "c")
    assert [(s.name, s.since) for s in admitted.start.stages] == [("Queued", "b"), ("Pods", "c")]  # type: ignore[union-attr]


def test_another_attempt_begins_a_list_of_its_own() -> None:
    ran = with_training(
        with_reported(with_stage(RLJobStatus(), "Pods", "a"), StartProgress("Preparing", 5.0), NOW), "b"
    )
    again = with_stage(ran, "Submitting", "c").start
    assert again is not None
    assert [stage.name for stage in again.stages] == ["Submitting"]


def test_a_run_whose_start_nobody_saw_has_none() -> None:
    """As after a lost status, or of an operator that did not record it."""
    assert with_training(RLJobStatus(), "b").start is None


def test_a_new_cluster_keeps_since_when_the_former_one_is_gone() -> None:
    ended = merged(status_training(), {"intent": {"ended": True}, "nextAttemptTime": times.to_text(NOW)})
    gone = with_stage(status.read_status({"status": ended}), "Waiting", times.to_text(at(20)))
    found = wrote(decide(seen(job(status=status.document(gone))), seconds=60)).start
    assert found is not None
    assert found.stages[0].name == "Waiting"
    other = wrote(decide(seen(job(status=ended)), seconds=60)).start
    assert other is None or "Training" not in [stage.name for stage in other.stages]
