"""The invariant of a plan, times, and the parsed context."""

from datetime import timedelta

import pytest
from builders import NOW, UID, Json, cluster, job, small_spec, status_begun

from rljob.core import times
from rljob.core.context import Context
from rljob.core.manifest_facts import generation_of
from rljob.core.observed import Observed, RayJobState
from rljob.core.plan import CreateObject, EventNote, EventType, Plan
from rljob.core.status import document, read_status
from rljob.core.watched import Watched
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN

EFFECT = CreateObject({"kind": "ConfigMap"})
NOTE = EventNote(EventType.NORMAL, "Valid", "")


def test_a_plan_never_holds_an_intent_and_effects() -> None:
    with pytest.raises(AssertionError, match="never both"):
        Plan(status={}, effects=(EFFECT,))


def test_an_event_goes_with_a_status_write() -> None:
    with pytest.raises(AssertionError, match="events belong to"):
        Plan(events=(NOTE,))


@pytest.mark.parametrize("plan", [{}, {"status": {}}, {"requeue_after_seconds": 3.0}])
def test_a_plan_rests_after_a_write_and_for_a_time(plan: Json) -> None:
    with pytest.raises(AssertionError, match="a plan rests"):
        Plan(**plan, rests=True)


@pytest.mark.parametrize(
    ("plan", "empty"),
    [(Plan(), True), (Plan(requeue_after_seconds=3), True), (Plan(status={}), False), (Plan(effects=(EFFECT,)), False)],
)
def test_a_plan_is_empty_when_it_writes_nothing(plan: Plan, *, empty: bool) -> None:
    assert plan.empty is empty


def test_times_are_whole_seconds_in_utc_and_read_back() -> None:
    text = times.to_text(NOW + timedelta(milliseconds=900))
    assert text == "2026-01-01T12:00:00Z"
    assert times.from_text(text) == NOW
    assert times.from_unix(NOW.timestamp()) == NOW
    assert times.after(text, 60) == NOW + timedelta(minutes=1)


def test_only_an_ended_ray_job_has_ended() -> None:
    assert [state.value for state in RayJobState if state.ended] == ["STOPPED", "SUCCEEDED", "FAILED"]


@pytest.mark.parametrize("known", [Watched(job(), (), None, NOW), Context.of(Observed(job()), NOW, LAUNCHER, BUILT_IN)])
def test_neither_a_step_nor_its_requirements_can_ask_for_an_intent_that_is_not_there(known: Watched) -> None:
    assert known.attempt is None
    assert known.open_attempt is None
    assert known.cluster is None
    with pytest.raises(AssertionError, match="before there was one"):
        _ = known.intent


def test_a_status_that_was_read_is_not_read_again() -> None:
    read = read_status(job(status=status_begun()))
    assert Context.of(Observed(job(status=status_begun()), status=read), NOW, LAUNCHER, BUILT_IN).status is read
    assert Context.of(Observed(job(status=status_begun())), NOW, LAUNCHER, BUILT_IN).status == read


def test_a_write_that_changes_nothing_takes_its_events_along() -> None:
    context = Context.of(Observed(job(status={"message": "step 3/20"})), NOW, LAUNCHER, BUILT_IN)
    assert context.write(context.status, NOTE, requeue=5.0, rests=True) == Plan(requeue_after_seconds=5.0)
    assert context.write_change(context.status, NOTE) is None
    other = context.status.model_copy(update={"message": "step 4/20"})
    changed = Plan(status=document(other), events=(NOTE,))
    assert context.write_change(other, NOTE) == context.write(other, NOTE) == changed


@pytest.mark.parametrize(
    ("spec", "start", "cluster_after"),
    [
        (small_spec({"deadlines": {"startSeconds": 60}}), 60, 0),
        (small_spec({"deadlines": {"startSeconds": 60}, "unknown": 1, "cleanup": {"clusterAfterSeconds": 5}}), 60, 5),
        (small_spec({"deadlines": {"startSeconds": -1}, "cleanup": {"clusterAfterSeconds": "x"}}), 1800, 0),
        ({}, 1800, 0),
    ],
    ids=["valid", "broken elsewhere", "broken here", "nothing"],
)
def test_a_broken_edit_does_not_take_the_deadlines_away(
    spec: dict[str, object], start: int, cluster_after: int
) -> None:
    context = Context.of(Observed(job(spec)), NOW, LAUNCHER, BUILT_IN)
    assert context.deadlines.start_seconds == start
    assert context.cleanup.cluster_after_seconds == cluster_after


@pytest.mark.parametrize(
    ("labels", "generation"),
    [({"rljob.dev/cluster-generation": "7"}, 7), ({}, 0), ({"rljob.dev/cluster-generation": "x"}, 0)],
)
def test_a_clusters_generation_stands_in_its_label(labels: dict[str, str], generation: int) -> None:
    assert generation_of(cluster(labels=labels)) == generation
    assert UID in str(cluster()["metadata"]["ownerReferences"])
