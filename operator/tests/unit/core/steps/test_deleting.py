"""A deleted job that must save first, decision by decision; tests/property/test_deleting.py tests whole lives."""

from __future__ import annotations

import pytest
from builders import (
    Json,
    answer,
    decide,
    job,
    merged,
    running,
    saving,
    small_spec,
    snapshot,
    status_after,
    status_finished,
    status_submitted,
    wrote,
)

from rljob.core.observed import UNSEEN, Observed
from rljob.core.plan import Plan, SetFinalizers
from rljob.render.labels import FORCE_DELETE, ISOLATED, STOP_FINALIZER

STOP = {"graceSeconds": 100, "requireCheckpoint": True}
HOLDING = small_spec(saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "stop": STOP}))
LEAVING = {"deletionTimestamp": "2026-01-01T12:00:00Z", "finalizers": [STOP_FINALIZER]}
RELEASED = Plan(effects=(SetFinalizers(()),))


def held(spec: Json = HOLDING, status: Json | None = None, **facts: object) -> Observed:
    metadata: Json = {"finalizers": [STOP_FINALIZER]} | facts.pop("metadata", {})  # type: ignore[operator]
    known = {"snapshot": snapshot(HOLDING), "progress": answer()} | facts
    return running(job=job(spec, status or status_submitted(), **metadata), **known)


def leaving(spec: Json = HOLDING, status: Json | None = None, **facts: object) -> Observed:
    return held(spec, status, metadata=LEAVING, **facts)


def test_a_running_job_keeps_its_finalizer() -> None:
    assert decide(held()).effects == ()


def test_a_job_that_does_not_have_it_yet_gets_it_behind_those_of_others() -> None:
    plan = decide(held(metadata={"finalizers": ["example.com/archive"]}))
    assert plan == Plan(effects=(SetFinalizers(("example.com/archive", STOP_FINALIZER)),))


@pytest.mark.parametrize(("checkpoint", "waits"), [(HOLDING["checkpoint"], True), (None, False)])
def test_a_ray_without_tokens_keeps_its_network_policy_while_it_saves(checkpoint: Json | None, *, waits: bool) -> None:
    old_ray = {"rayVersion": "2.48.0", "unauthenticatedRay": True}
    spec = merged(HOLDING, {"runtime": old_ray, "stop": None, "checkpoint": checkpoint})
    plan = decide(held(spec, snapshot=snapshot(spec), metadata={"finalizers": []}))
    assert plan.effects == ((SetFinalizers((STOP_FINALIZER,)),) if waits else ())
    assert (decide(held(spec, snapshot=snapshot(spec))) == RELEASED) is not waits


@pytest.mark.parametrize(
    ("mode", "closed", "waits"), [("Pod", True, True), ("Host", True, False), ("Pod", False, False)]
)
def test_so_does_a_job_of_a_closed_namespace(mode: str, *, closed: bool, waits: bool) -> None:
    spec = merged(HOLDING, {"stop": None, "network": {"mode": mode}})
    known: Json = {"snapshot": snapshot(spec), "namespace_is_closed": closed}
    plan = decide(held(spec, metadata={"finalizers": []}, **known))
    assert plan.effects == ((SetFinalizers((STOP_FINALIZER,)),) if waits else ())
    assert (decide(held(spec, **known)) == RELEASED) is not waits


def test_a_cluster_with_a_policy_keeps_it_when_its_namespace_is_no_longer_closed() -> None:
    spec = merged(HOLDING, {"stop": None})
    seen = held(spec, snapshot=snapshot(spec))
    assert decide(seen) == RELEASED
    assert seen.head_pod is not None
    marked = merged(dict(seen.head_pod), {"metadata": {"labels": {ISOLATED: "true"}}})
    assert decide(held(spec, snapshot=snapshot(spec), head_pod=marked)) != RELEASED


def test_the_stop_of_a_deletion_has_the_deadline_of_every_stop() -> None:
    told = wrote(decide(leaving())).stop
    assert told is not None
    assert (told.reason, told.mode, told.deadline) == ("Deleted", "AfterStep", "2026-01-01T12:01:40Z")


def test_a_checkpoint_that_the_mode_never_makes_is_not_waited_for() -> None:
    told = wrote(decide(leaving(merged(HOLDING, {"stop": {"mode": "Immediate"}})))).stop
    assert told is not None
    assert told.deadline == told.requested_time


def test_what_could_not_be_read_does_not_free_a_job() -> None:
    for world in (held(snapshot=UNSEEN), leaving(snapshot=UNSEEN)):
        assert decide(world) == Plan(requeue_after_seconds=5.0)


@pytest.mark.parametrize("snapshot_seen", [UNSEEN, snapshot(HOLDING)])
def test_who_forces_the_deletion_waits_for_nothing(snapshot_seen: object) -> None:
    metadata = LEAVING | {"annotations": {FORCE_DELETE: "true"}}
    assert decide(held(metadata=metadata, snapshot=snapshot_seen)) == RELEASED


def test_another_word_than_true_forces_nothing() -> None:
    assert decide(held(metadata=LEAVING | {"annotations": {FORCE_DELETE: "no"}})) != RELEASED


def test_a_closed_attempt_frees_the_job() -> None:
    begun = status_after(decide(leaving()))
    closed = status_after(decide(leaving(status=begun), seconds=100))
    assert decide(leaving(status=closed), seconds=100) == RELEASED


def test_a_finished_job_is_freed_before_its_cluster_is_cleaned_up() -> None:
    assert decide(held(status=status_finished())) == RELEASED


def test_a_snapshot_that_is_gone_with_its_namespace_does_not_hold_the_job() -> None:
    begun = decide(leaving(snapshot=None))
    closed = decide(leaving(status=status_after(begun), snapshot=None))
    assert decide(leaving(status=status_after(closed), snapshot=None)) == RELEASED


def test_a_job_of_another_operator_is_left_alone() -> None:
    assert decide(leaving(merged(HOLDING, {"managedBy": "example.com/other"}))) == Plan()
