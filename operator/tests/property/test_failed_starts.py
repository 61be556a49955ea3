"""Starts that fail before a submission: in the status, in the records, and again after the status was lost."""

from __future__ import annotations

from property.test_evidence import kept
from property.test_restarting import finish, new_world, submissions, train, wait
from property.world import World

from rljob.api.status import AttemptOutcome, State
from rljob.core import times

REASON = "StartDeadlineExceeded"
DEVICES = 2


def fail_to_start(world: World) -> None:
    """Make a cluster's pods never become ready."""
    begun = len(world.status.attempts)
    while len(world.status.attempts) == begun:
        wait(world, 60)
        world.make_pods()
    wait(world, 30)


def test_they_stand_among_the_attempts_and_use_numbers_up() -> None:
    world = new_world()
    for _ in range(2):
        fail_to_start(world)
    train(world)
    attempts = [(attempt.number, attempt.cluster_name, attempt.reason) for attempt in world.status.attempts]
    assert attempts == [(1, "sums-00000-1", REASON), (2, "sums-00000-2", REASON), (3, "sums-00000-3", None)]
    assert {attempt.outcome for attempt in world.status.attempts} == {AttemptOutcome.LOST, None}
    assert submissions(world) == ["sums-00000-3-3"]
    finish(world)
    assert world.status.counters.infrastructure_failures == 2
    world.close()


def test_they_are_kept_as_evidence_and_remembered_when_the_status_is_lost() -> None:
    world = new_world()
    fail_to_start(world)
    (entry,) = kept(world).values()
    assert entry["attempt"]["reason"] == REASON
    assert [pod["name"] for pod in entry["pods"]] == ["sums-00000-1-head-1"]
    train(world)
    before = world.status
    world.wipe_status()
    wait(world)
    after = world.status
    assert [(a.number, a.outcome, a.reason) for a in after.attempts] == [
        (a.number, a.outcome, a.reason) for a in before.attempts
    ]
    assert (after.counters, after.usage) == (before.counters, before.usage)
    finish(world)
    assert submissions(world) == ["sums-00000-2-2"]
    world.close()


def test_the_last_one_stands_in_a_job_that_has_failed() -> None:
    world = new_world(restart={"maxInfrastructureRestarts": 0})
    fail_to_start(world)
    assert world.status.state is State.FAILED
    (attempt,) = world.status.attempts
    assert (attempt.outcome, attempt.reason) == (AttemptOutcome.LOST, REASON)
    assert list(kept(world)) == ["attempt-1.json"]
    world.close()


def test_a_start_that_goes_well_counts_from_when_its_workers_got_nodes() -> None:
    world = new_world()
    world.make_nodes("n1")
    wait(world, 1)
    assert world.ray_cluster is not None
    world.place_workers()
    assert world.worker_pod is not None
    wait(world, 60)
    train(world)
    (running,) = world.status.attempts
    placed = times.from_text(world.worker_pod["status"]["conditions"][0]["lastTransitionTime"])
    started = (times.from_text(running.submitted_time) - placed).total_seconds()
    assert started >= 60
    assert running.device_seconds == DEVICES * started
    finish(world)
    (ended,) = world.status.attempts
    ran = times.from_text(str(ended.end_time)) - times.from_text(ended.submitted_time)
    assert ended.device_seconds == world.status.usage.device_seconds == DEVICES * (started + ran.total_seconds())
    world.close()
