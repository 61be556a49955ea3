"""spec.suspend, decision by decision; tests/property/test_suspend.py tests whole lives."""

from __future__ import annotations

import pytest
from builders import (
    CLUSTER_NAME,
    NOW,
    SUBMISSION_ID,
    UID,
    Json,
    answer,
    at,
    cluster,
    decide,
    job,
    merged,
    pod,
    reasons,
    requests,
    running,
    saving,
    seen,
    small_spec,
    snapshot,
    status_after,
    status_begun,
    status_submitted,
    wrote,
)

from rljob.api.status import State
from rljob.core import times
from rljob.core.attempts.recovery import recall
from rljob.core.observed import UNSEEN, Observed
from rljob.core.plan import CreateObject, DeleteObject, Plan, StopRun
from rljob.core.requirements import Pods, Requirements
from rljob.render import configmap
from rljob.render.accelerators import BUILT_IN
from rljob.render.labels import STOP_FINALIZER
from rljob_runtime.contract import Outcome, Phase, StopMode

SAVING = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "stop": {"graceSeconds": 100}}))
HELD = merged(SAVING, {"suspend": True})
KEPT = merged(SAVING, {"stop": {"requireCheckpoint": True}})
DELETED = {"deletionTimestamp": "2026-01-01T11:59:00Z", "finalizers": [STOP_FINALIZER]}
DELETION = DeleteObject("ray.io/v1", "RayCluster", "team", CLUSTER_NAME, "cluster-uid")


def begun(spec: Json = HELD) -> Plan:
    return decide(running(job=job(spec, status_submitted()), snapshot=snapshot(SAVING), progress=answer()))


def stopping(status: Json | None = None, **facts: object) -> Observed:
    known = {"snapshot": snapshot(SAVING), "progress": answer()} | facts
    return running(job=job(HELD, status or status_after(begun())), **known)


def closed() -> Json:
    """Return the status after the attempt's end."""
    outcome = Outcome(66, "Stopped", "saved step 3", last_step=3)
    return status_after(decide(stopping(progress=answer({"phase": Phase.ENDED, "outcome": outcome}))))


def test_a_stop_is_written_down_with_its_deadline_before_anybody_is_asked() -> None:
    plan = begun()
    assert plan.effects == ()
    stop = wrote(plan).stop
    assert stop is not None
    assert (stop.reason, stop.mode, stop.deadline) == ("Suspended", "AfterStep", "2026-01-01T12:01:40Z")
    assert wrote(plan).state is State.STOPPING


@pytest.mark.parametrize(
    ("stop", "mode", "grace"),
    [({"mode": "AbortRollout"}, "AbortRollout", 100), ({"mode": "Immediate"}, "Immediate", 0)],
)
def test_the_user_chooses_how_the_run_is_stopped(stop: Json, mode: str, grace: int) -> None:
    told = wrote(begun(merged(HELD, {"stop": stop}))).stop
    assert told is not None
    assert (told.mode, told.deadline > told.requested_time) == (mode, grace > 0)


@pytest.mark.parametrize(
    ("change", "grace", "words"),
    [
        ({}, 0, "the run is ended without a checkpoint: spec.checkpoint is not set"),
        ({"cleanup": {"clusterAfterSeconds": 3600}}, 10, "the run is ended immediately"),
    ],
)
def test_a_run_is_ended_before_its_cluster_stays_without_it(change: Json, grace: int, words: str) -> None:
    spec = small_spec(merged({"deadlines": {"activeSeconds": 100}}, change))

    def world(status: Json, **facts: object) -> Observed:
        return running(job=job(spec, status), snapshot=snapshot(spec), progress=answer(), **facts)

    plan = decide(world(status_submitted()), seconds=100)
    if grace:
        told = wrote(plan)
        assert told.stop is not None
        assert (told.stop.mode, told.stop.deadline) == ("Immediate", times.to_text(at(110)))
        assert words in str(told.message)
        (asked,) = decide(world(status_after(plan)), seconds=101).effects
        assert isinstance(asked, StopRun)
        assert asked.mode is StopMode.IMMEDIATE
        plan = decide(world(status_after(plan)), seconds=110)
    else:
        assert words in plan.events[0].message
        plan = decide(world(status_after(plan)), seconds=100)
    assert (wrote(plan).state, wrote(plan).reason) == (State.FAILED, "ActiveDeadlineExceeded")


@pytest.mark.parametrize(
    ("world", "words"),
    [
        (seen(job(HELD, status_begun(SAVING)), snapshot=snapshot(SAVING)), "no running attempt to checkpoint"),
        (running(job=job(HELD, status_submitted()), snapshot=snapshot(SAVING)), "may save until 2026-01-01T12:01:40Z"),
        (
            running(
                job=job(merged(HELD, {"stop": {"mode": "Immediate"}}), status_submitted()), snapshot=snapshot(SAVING)
            ),
            "the run is ended immediately",
        ),
        (
            running(job=job({**small_spec(), "suspend": True}, status_submitted()), snapshot=snapshot()),
            "the run is ended without a checkpoint: spec.checkpoint is not set",
        ),
        (
            running(job=job(KEPT, status_submitted(), **DELETED), snapshot=None),
            "the run is ended without a checkpoint: the snapshot of its spec was not found",
        ),
    ],
    ids=["nothing runs", "saves", "stop.mode is Immediate", "saves nothing", "deleted, without a snapshot"],
)
def test_the_status_says_what_the_run_may_still_do(world: Observed, words: str) -> None:
    plan = decide(world)
    assert str(wrote(plan).message).endswith(words)
    assert plan.events[0].message.endswith(words)


def test_what_was_measured_chooses_and_the_status_says_why() -> None:
    long = answer({"step": 4, "median_step_seconds": 900.0, "median_rollout_seconds": 800.0})
    free = running(job=job(SAVING, status_submitted()), snapshot=snapshot(SAVING), progress=long)
    measured = job(HELD, status_after(decide(free)))
    stop = wrote(decide(running(job=measured, snapshot=snapshot(SAVING), progress=long))).stop
    assert stop is not None
    assert (stop.mode, stop.deadline) == ("AbortRollout", "2026-01-01T12:01:40Z")
    assert stop.decision == (
        "a step takes 900 s: more than stop.graceSeconds 100, but 800 s of it are rollout, which is discarded"
    )


def test_the_exporter_of_the_intended_head_is_asked_until_it_shows() -> None:
    plan = decide(stopping())
    assert plan.effects == (StopRun("10.0.0.9", "head-uid", UID, CLUSTER_NAME, 1, StopMode.AFTER_STEP),)
    assert plan.requeue_after_seconds == 5.0
    for told in (answer({"phase": Phase.STOPPING}), UNSEEN):
        assert decide(stopping(progress=told)) == Plan(requeue_after_seconds=5.0)


def test_a_run_that_a_hook_asked_more_gently_is_asked_for_the_stop_that_was_decided() -> None:
    gently = answer({"phase": Phase.STOPPING})
    for mode in (StopMode.ABORT_ROLLOUT, StopMode.IMMEDIATE, StopMode.STALLED):
        world = stopping(progress=gently)
        world.job["status"]["stop"]["mode"] = mode.value
        (effect,) = decide(world).effects
        assert isinstance(effect, StopRun)
        assert effect.mode is mode


def test_a_head_that_is_being_deleted_is_asked_often_enough_to_hear_its_end() -> None:
    leaving = pod()
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T12:00:00Z"
    asked = decide(stopping(head_pod=leaving, progress=answer({"phase": Phase.STOPPING})))
    assert asked == Plan(requeue_after_seconds=2.0)


def test_a_head_that_is_gone_is_not_waited_for() -> None:
    (attempt,) = wrote(decide(stopping(head_pod=None))).attempts
    assert (attempt.outcome, attempt.reason) == ("Stopped", "Suspended")


def test_the_end_is_written_with_the_last_words_before_the_cluster_goes() -> None:
    status = closed()
    assert status["attempts"][0]["message"] == "saved step 3"
    assert decide(stopping(status)).effects == (DELETION,)


def test_a_cluster_that_only_a_live_read_shows_goes_too() -> None:
    plan = decide(stopping(closed(), clusters=(), live_cluster=cluster(), pods=()))
    assert plan.effects == (DELETION,)
    alien = cluster(ownerReferences=[])
    assert wrote(decide(stopping(closed(), clusters=(), live_cluster=alien, pods=()))).state is State.SUSPENDED


@pytest.mark.parametrize(
    "left",
    [
        {"clusters": (cluster(deletionTimestamp="2026-01-01T11:59:59Z"),), "live_cluster": None, "pods": ()},
        {"clusters": (), "live_cluster": UNSEEN, "pods": ()},
        {"clusters": (), "live_cluster": None, "pods": UNSEEN},
        {"clusters": (), "live_cluster": None, "pods": (pod(),)},
    ],
    ids=["cluster", "cluster not looked for", "pods not looked for", "pod"],
)
def test_the_npus_are_not_called_free_while_something_may_hold_them(left: Json) -> None:
    assert decide(stopping(closed(), **left)) == Plan(requeue_after_seconds=5.0)


ORPHAN: Json = {"metadata": {"name": "w-1", "labels": {}}, "spec": {"nodeName": "n1"}}
HELD_UP = cluster(deletionTimestamp="2026-01-01T12:00:00Z", finalizers=["somebody/else"])


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({"clusters": (), "live_cluster": None, "pods": (ORPHAN,)}, "pod w-1 carries the label of RayCluster sums-"),
        (
            {"clusters": (HELD_UP,), "live_cluster": None, "pods": ()},
            "2026-01-01T12:00:00Z (finalizers: somebody/else)",
        ),
        ({"clusters": (), "live_cluster": HELD_UP, "pods": ()}, "finalizers: somebody/else"),
    ],
    ids=["orphan", "finalizer", "finalizer of one that only a live read shows"],
)
def test_a_pod_that_does_not_terminate_is_reported_after_two_minutes(left: Json, words: str) -> None:
    status = closed()
    deadline = (times.from_text(status["stop"]["deadline"]) - NOW).total_seconds()
    assert decide(stopping(status, **left), 119).empty
    plan = decide(stopping(status, **left), deadline + 120)
    assert (wrote(plan).reason, words in (wrote(plan).message or "")) == ("PodStuckTerminating", True)
    again = decide(stopping(status_after(plan), **left), deadline + 200)
    assert again == Plan(requeue_after_seconds=5.0)


def test_pods_that_are_still_terminating_are_not_reported() -> None:
    going = ORPHAN | {"metadata": ORPHAN["metadata"] | {"deletionTimestamp": "2026-01-01T12:20:00Z"}}
    for left in (
        {"clusters": (), "live_cluster": None, "pods": (going,)},
        {"clusters": (), "live_cluster": UNSEEN, "pods": (ORPHAN,)},
        {"clusters": (), "live_cluster": None, "pods": UNSEEN},
    ):
        assert decide(stopping(closed(), **left), 1000).empty


def test_a_stop_asks_for_the_run_and_then_for_what_is_left() -> None:
    asked = requests(job(HELD, status_after(begun())), (cluster(ready=1),), pod(), NOW)
    assert asked.head is not None
    assert (asked.progress, asked.ray_job_id) == (True, SUBMISSION_ID)
    selector = f"ray.io/cluster={CLUSTER_NAME}"
    after = requests(job(HELD, closed()), (), None, at(60))
    assert after == Requirements(
        snapshot_name=CLUSTER_NAME, cluster_name=CLUSTER_NAME, pods=Pods(selector, urgent=True)
    )


def suspended() -> Json:
    return status_after(decide(stopping(closed(), clusters=(), live_cluster=None, pods=())))


def resumed(spec: Json) -> Json:
    told = suspended()
    while told["intent"].get("ended"):
        told = status_after(decide(seen(job(spec, told), snapshot=snapshot(SAVING))))
    return told


EDITED = merged(SAVING, {"trainer": {"learningRate": "1e-5"}})


def test_the_next_snapshot_waits_for_the_one_whose_recipes_it_takes() -> None:
    world = Observed(job(EDITED, resumed(EDITED)), snapshot=None, base_snapshot=UNSEEN)
    assert decide(world) == Plan(requeue_after_seconds=5.0)
    taken = decide(Observed(world.job, snapshot=None, base_snapshot=snapshot(SAVING)))
    assert reasons(taken)["PendingChanges"] == ("False", "UpToDate")
    _, effect = decide(Observed(job(EDITED, taken.status), snapshot=None, base_snapshot=snapshot(SAVING))).effects
    assert isinstance(effect, CreateObject)
    assert effect.manifest["metadata"]["name"] == "sums-0a1b2-2"
    assert configmap.read_snapshot(effect.manifest, BUILT_IN).spec.trainer.learning_rate == "1e-5"


def test_an_edit_between_the_intent_and_the_snapshot_begins_the_generation_after() -> None:
    again = merged(EDITED, {"trainer": {"steps": 90}})
    told = decide(Observed(job(again, resumed(EDITED)), snapshot=None, base_snapshot=snapshot(SAVING)))
    ended = decide(Observed(job(again, told.status), snapshot=None, base_snapshot=snapshot(SAVING)))
    intent = wrote(ended).intent
    assert intent is not None
    assert intent.ended
    status = wrote(decide(Observed(job(again, ended.status), snapshot=None, base_snapshot=snapshot(SAVING))))
    assert status.intent is not None
    assert status.resolved is not None
    assert status.intent.cluster_generation == 3
    assert (status.resolved.snapshot_name, status.resolved.base_snapshot) == ("sums-0a1b2-3", CLUSTER_NAME)


def test_initializers_are_looked_at_again_for_another_spec() -> None:
    def initialized(status: Json) -> str:
        return str(next(c["status"] for c in status["conditions"] if c["type"] == "Initialized"))

    more = merged(SAVING, {"initializers": [{"name": "prepare", "command": ["true"]}]})
    assert [initialized(resumed(spec)) for spec in (more, EDITED, SAVING)] == ["False", "True", "True"]


def kept(intent: str) -> Json:
    return {"metadata": {"name": intent, "annotations": {"rljob.dev/intent": intent}}}


def test_a_frozen_cluster_may_be_the_snapshot_as_well() -> None:
    whole = kept("u/cluster/2") | {"data": {"spec.json": "{}"}}
    found = recall("u", [kept("u/spec/1"), whole, kept("u/cluster/3")])
    assert (found.snapshot, found.last_generation) == (whole, 3)


@pytest.mark.parametrize(
    ("intents", "latest", "last"),
    [
        ([], None, 0),
        (["u/spec/1"], "u/spec/1", 0),
        (["u/spec/1", "u/cluster/1"], "u/spec/1", 1),
        (["u/spec/10", "u/spec/9", "u/cluster/9"], "u/spec/10", 9),
        (["u/spec/1", "u/cluster/1", "u/cluster/2"], "u/spec/1", 2),
        (["other/spec/3", "u/code", "u/spec/x", "", "u/initializer/7"], None, 0),
    ],
)
def test_leftover_objects_yield_the_snapshot_and_the_last_generation(
    intents: list[str], latest: str | None, last: int
) -> None:
    found = recall("u", [*map(kept, intents), {"metadata": {"name": "bare"}}])
    assert (found.snapshot["metadata"]["name"] if found.snapshot else None, found.last_generation) == (latest, last)
