"""Failures, losses and preemptions in the whole world: what is counted, what is restarted, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from builders import merged, saving, small_spec
from property.world import World

from rljob.api.status import AttemptOutcome, FailureCause, State
from rljob.cluster.errors import HeadUnreachable
from rljob.cluster.kinds import CONFIG_MAP, EVENT, RAY_CLUSTER
from rljob.core import times

RESTARTING = saving(
    {
        "checkpoint": {"path": "/data/saves", "everySteps": 5},
        "restart": {"maxRestarts": 2, "maxInfrastructureRestarts": 3, "backoffSeconds": 10},
        "deadlines": {"startSeconds": 600, "progressSeconds": 900, "activeSeconds": 86_400},
        "stop": {"graceSeconds": 60},
    }
)


@pytest.fixture
def world() -> Iterator[World]:
    made = new_world()
    yield made
    made.close()


def new_world(**change: Any) -> World:  # noqa: ANN401 - JSON
    return World(small_spec(merged(RESTARTING, change)))


def wait(world: World, seconds: float = 10) -> None:
    """Advance time and run the operator until it rests."""
    world.settle()
    world.clock.advance(seconds)
    world.settle()


def train(world: World, steps: int = 5, *, saves: bool = False) -> None:
    """Advance to the next steps of an attempt, starting it if necessary."""
    for _ in range(20):
        wait(world)
        world.make_ready()
        if world.submission is not None and not world.submission.state.ended:
            break
    world.run_driver(steps, saves=saves)
    wait(world)


def finish(world: World) -> None:
    """Advance the run to its end."""
    train(world, 40, saves=True)
    world.end_driver(0)
    wait(world)
    assert world.status.state is State.SUCCEEDED


def state(world: World) -> State:
    return world.status.state


def exists(world: World) -> bool:
    return world.job is not None


def submissions(world: World) -> list[str]:
    return [entry.submission_id for entry in world.ray.submissions]


def test_a_run_that_fails_gets_another_driver_in_its_cluster(world: World) -> None:
    train(world, 7, saves=True)
    world.end_driver(1)
    wait(world)
    assert (world.status.attempts[0].reason, world.status.restarts) == ("Ended", 1)
    notes = [str(event.get("note")) for event in world.cluster.objects(EVENT)]
    said = "Ended: code 1 (1 of 2 by restart.maxRestarts); restarting in the same cluster at"
    assert any(note.startswith(said) for note in notes), notes
    train(world)
    assert submissions(world) == ["sums-00000-1-1", "sums-00000-1-2"]
    assert world.invariants.clusters_made == ["sums-00000-1"]
    first, second = world.status.attempts
    assert (first.outcome, first.cause, first.last_step) == (AttemptOutcome.FAILED, FailureCause.USER, 7)
    assert (second.resumed_from_step, second.outcome) == (7, None)
    finish(world)
    assert world.status.counters.user_failures == 1


def test_a_second_failure_without_a_newer_checkpoint_gets_a_new_cluster_and_a_third_is_the_end(world: World) -> None:
    for _ in range(2):
        train(world, 3)
        world.end_driver(1)
        wait(world, 30)
    train(world, 3)
    assert submissions(world) == ["sums-00000-1-1", "sums-00000-1-2", "sums-00000-2-3"]
    world.end_driver(1)
    wait(world)
    status = world.status
    assert (status.state, status.budget.user_failures) == (State.FAILED, 3)
    assert status.message == "code 1 (restart.maxRestarts 2 used up)"
    assert world.cluster.objects(RAY_CLUSTER) == ()


def test_a_lost_status_brings_no_second_driver_and_forgets_no_attempt(world: World) -> None:
    for _ in range(2):
        train(world, 3)
        world.end_driver(1)
        wait(world, 30)
    train(world, 3)
    before = world.status
    world.wipe_status()
    wait(world)
    assert submissions(world) == ["sums-00000-1-1", "sums-00000-1-2", "sums-00000-2-3"]
    after = world.status
    assert (after.restarts, after.counters, after.usage) == (before.restarts, before.counters, before.usage)
    assert [(a.number, a.outcome, a.message) for a in after.attempts] == [
        (a.number, a.outcome, a.message) for a in before.attempts
    ]
    finish(world)
    assert world.status.attempts[-1].number == 3


def test_an_attempt_that_nobody_knows_to_be_submitted_uses_its_number_up_when_the_job_is_suspended(
    world: World,
) -> None:
    for _ in range(2):
        train(world, 3)
        world.end_driver(1)
        wait(world, 30)
    world.ray.lost_answers.append(HeadUnreachable("lost"))
    while len(world.ray.submissions) < 3:
        wait(world)
        world.make_ready()
        world.ray.api_silent = len(world.ray.submissions) == 3
    world.suspend()
    wait(world, 100)
    world.ray.api_silent = False
    assert world.status.state is State.SUSPENDED
    assert [(attempt.number, attempt.outcome) for attempt in world.status.attempts][2:] == [(3, AttemptOutcome.STOPPED)]
    world.suspend(suspended=False)
    train(world)
    assert submissions(world)[2:] == ["sums-00000-2-3", "sums-00000-3-4"]


def test_an_entry_that_somebody_spoilt_is_no_attempt(world: World) -> None:
    for _ in range(2):
        train(world, 3)
        world.end_driver(1)
        wait(world, 30)
    train(world, 3)
    attempt = world.status.attempts[-1].model_dump(mode="json", by_alias=True, exclude_none=True)
    spoilt = {
        "attempt-1.json": "{",
        "attempt-7.json": "[]",
        "attempt-8.json": json.dumps({"attempt": attempt}),
        "a": "b",
    }
    world.cluster.edit(CONFIG_MAP, "team", "sums-00000-attempts", lambda found: found["data"].update(spoilt))
    world.wipe_status()
    wait(world)
    assert [attempt.number for attempt in world.status.attempts] == [2, 3]


def test_a_run_that_gets_ahead_each_time_may_fail_for_ever(world: World) -> None:
    for _ in range(6):
        train(world, 5, saves=True)
        world.end_driver(1)
        wait(world, 30)
    assert (world.status.counters.user_failures, world.status.budget.user_failures) == (6, 1)
    finish(world)


def test_the_time_of_all_attempts_is_added_up(world: World) -> None:
    for _ in range(3):
        train(world, 5, saves=True)
        world.end_driver(1)
        wait(world, 30)
    ended = world.status
    spans = [(each.submitted_time, each.end_time) for each in ended.attempts if each.end_time is not None]
    lasted = sum((times.from_text(end) - times.from_text(begin)).total_seconds() for begin, end in spans)
    used = ended.usage
    assert used.attempt_seconds == lasted > 0
    assert used.device_seconds == used.productive_device_seconds + sum(
        rest.device_seconds for rest in used.unproductive
    )


def test_a_lost_head_gets_a_new_cluster_when_every_old_pod_is_gone(world: World) -> None:
    train(world, 6, saves=True)
    world.lose_head()
    wait(world, 1)
    status = world.status
    assert (status.state, status.counters.infrastructure_failures) == (State.RESTARTING, 1)
    assert world.cluster.objects(RAY_CLUSTER) == ()
    assert world.words[-1] == "status"
    assert (status.attempts[0].outcome, status.attempts[0].reason) == (AttemptOutcome.LOST, "HeadLost")
    finish(world)
    assert submissions(world) == ["sums-00000-1-1", "sums-00000-2-2"]
    assert world.status.attempts[1].resumed_from_step == 6


def test_a_run_that_had_trained_and_dies_at_its_next_start_is_given_one_other_place(world: World) -> None:
    train(world, 6, saves=True)
    world.lose_head()
    for _ in range(2):
        train(world, 0)
        world.end_driver(1, reason="RunFailed")
        wait(world)
    causes = [attempt.cause for attempt in world.status.attempts]
    assert causes == [FailureCause.INFRASTRUCTURE, FailureCause.INFRASTRUCTURE, FailureCause.USER]


def test_an_attempt_that_made_no_step_is_not_given_the_steps_of_the_one_before(world: World) -> None:
    train(world, 6, saves=True)
    world.lose_head()
    for _ in range(20):
        wait(world)
        world.make_ready()
        if len(world.status.attempts) == 2:
            break
    world.lose_head()
    wait(world, 1)
    first, second = world.status.attempts
    assert first.productive_device_seconds
    assert second.productive_device_seconds == 0
    assert second.end_time is not None


def test_a_cluster_that_somebody_deletes_is_an_infrastructure_failure(world: World) -> None:
    train(world)
    world.delete_cluster()
    wait(world)
    assert world.status.attempts[0].reason == "ClusterLost"
    finish(world)
    assert world.status.counters.infrastructure_failures == 1


def test_nothing_begins_before_its_time(world: World) -> None:
    train(world)
    world.lose_head()
    wait(world, 1)
    begin = world.status.next_attempt_time
    words = len(world.words)
    wait(world, 5)
    assert (len(world.words), world.status.next_attempt_time) == (words, begin)
    wait(world, 10)
    assert world.invariants.clusters_made[-1] == "sums-00000-2"


def test_a_preempted_cluster_waits_for_its_queue_and_counts_for_nobody() -> None:
    world = new_world(scheduling={"queueName": "team"})
    wait(world)
    world.admit()
    train(world, 6)
    world.suspend_cluster()
    wait(world)
    assert state(world) is State.STOPPING
    world.run_driver(0, saves=True)
    world.end_driver(66)
    world.lose_head()
    wait(world)
    status = world.status
    assert (status.state, status.reason) == (State.QUEUED, "WaitingForQueue")
    assert (status.counters.preemptions, status.budget.user_failures) == (1, 0)
    assert status.attempts[0].outcome is AttemptOutcome.PREEMPTED
    wait(world, 100_000)
    assert state(world) is State.QUEUED
    world.admit()
    finish(world)
    assert submissions(world) == ["sums-00000-1-1", "sums-00000-1-2"]
    world.close()


def test_a_preempted_run_is_not_begun_again_in_the_pods_that_are_leaving() -> None:
    world = new_world(scheduling={"queueName": "team"})
    wait(world)
    world.admit()
    train(world, 6)
    ready = (world.ray_cluster or {})["status"]
    world.suspend_cluster()
    # KubeRay counts the old pods as ready until their hooks have finished.
    name = (world.ray_cluster or {})["metadata"]["name"]
    world.cluster.edit(RAY_CLUSTER, "team", name, lambda cluster: cluster.update(status=ready))
    wait(world)
    world.run_driver(0, saves=True)
    world.end_driver(66)
    for _ in range(5):
        wait(world)
    assert (world.status.reason, world.status.counters.preemptions, world.status.restarts) == ("WaitingForQueue", 1, 1)
    world.lose_head()
    wait(world)
    world.admit()
    finish(world)
    assert submissions(world) == ["sums-00000-1-1", "sums-00000-1-2"]
    world.close()


def test_a_cluster_that_is_preempted_before_its_submission_is_recorded_keeps_its_place() -> None:
    world = new_world(scheduling={"queueName": "team"})
    wait(world)
    world.admit()
    world.settle()
    world.ray.api_silent = True
    world.make_ready()
    world.settle()
    assert submissions(world) == []
    world.suspend_cluster()
    world.lose_head()
    wait(world)
    world.ray.api_silent = False
    assert (world.status.reason, world.status.counters.preemptions) == ("WaitingForQueue", 1)
    world.admit()
    finish(world)
    assert submissions(world) == ["sums-00000-1-2"]
    world.close()


@pytest.mark.parametrize("code", [67, 139, -11])
def test_a_run_without_steps_is_asked_for_its_stacks_and_begins_anew(world: World, code: int) -> None:
    train(world, 6, saves=True)
    wait(world, 901)
    assert world.status.state is State.STOPPING
    assert [run.mode for run in world.ray.stops] == ["Stalled"]
    world.end_driver(code, reason="Stalled" if code == 67 else "")
    wait(world)
    attempt = world.status.attempts[0]
    assert (attempt.reason, attempt.cause) == ("ProgressDeadlineExceeded", FailureCause.INFRASTRUCTURE)
    assert str(attempt.message).startswith("no step since")
    assert f"code {code}" in str(attempt.message)
    finish(world)


def test_a_stalled_run_that_leaves_no_stacks_is_ended_all_the_same(world: World) -> None:
    train(world, 6, saves=True)
    wait(world, 901)
    wait(world, 120)
    assert world.status.state in (State.RESTARTING, State.PENDING, State.STARTING)
    finish(world)


def test_a_run_beyond_its_active_deadline_saves_and_has_failed(world: World) -> None:
    train(world)
    for _ in range(200):
        world.run_driver(0)
        wait(world, 600)
        if world.status.state is State.STOPPING:
            break
        world.run_driver(1)
    assert world.ray.stops[-1].mode == "AfterStep"
    world.end_driver(66)
    wait(world)
    assert (world.status.state, world.status.reason) == (State.FAILED, "ActiveDeadlineExceeded")


def test_a_suspension_during_the_wait_ends_the_restart(world: World) -> None:
    train(world, 6, saves=True)
    world.lose_head()
    wait(world, 1)
    world.suspend()
    wait(world)
    assert (world.status.state, world.status.next_attempt_time) == (State.SUSPENDED, None)
    world.suspend(suspended=False)
    finish(world)


def test_a_broken_edit_does_not_hold_up_a_restart_in_the_night(world: World) -> None:
    train(world, 6, saves=True)
    world.edit_spec(small_spec(merged(RESTARTING, {"trainer": {"globalBatchSize": 33, "samplesPerPrompt": 7}})))
    world.lose_head()
    finish(world)


def test_a_valid_edit_is_taken_by_the_restarted_run(world: World) -> None:
    train(world, 6, saves=True)
    world.edit_spec(small_spec(merged(RESTARTING, {"trainer": {"learningRate": "1e-4"}})))
    world.lose_head()
    train(world)
    resolved = world.status.resolved
    assert resolved is not None
    assert resolved.snapshot_name == "sums-00000-2"


def test_a_rule_stops_the_job_without_blame() -> None:
    rules = [{"name": "enough", "onExitCodes": [42], "action": "Stop"}]
    world = new_world(restart={"rules": rules})
    train(world)
    world.end_driver(42)
    wait(world)
    assert (world.status.state, world.status.message) == (State.STOPPED, "code 42 (restart rule enough: Stop)")
    world.close()


def test_usage_counts_what_was_held_and_what_was_not_lost(world: World) -> None:
    train(world, 6, saves=True)
    train(world, 4)
    world.lose_head()
    wait(world, 1)
    first = world.status.attempts[0]
    assert first.productive_device_seconds == 6 * 4 * 2
    assert first.device_seconds is not None
    assert first.device_seconds > first.productive_device_seconds
    finish(world)
    usage = world.status.usage
    assert 6 * 4 * 2 < usage.productive_device_seconds < usage.device_seconds
    assert usage.device_seconds == sum(attempt.device_seconds or 0 for attempt in world.status.attempts)


def test_a_node_that_fails_twice_is_avoided() -> None:
    world = new_world()
    for _ in range(2):
        train(world, 3)
        world.lose_head()
        wait(world, 60)
    (excluded,) = world.status.excluded_nodes
    assert (excluded.name, excluded.reason) == ("node-1", "HeadLost")
    train(world)
    spec = world.cluster.objects(RAY_CLUSTER)[0]["spec"]
    term = spec["headGroupSpec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (alternative,) = term["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    assert alternative["matchExpressions"] == [
        {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["node-1"]}
    ]
    world.close()


def test_a_worker_node_that_is_lost_twice_is_avoided() -> None:
    world = new_world()
    world.make_nodes("node-7", "node-8")
    for blamed, avoided in ((1, []), (2, ["node-7"])):
        train(world, 3)
        world.end_driver(65, reason="NodeLost", suspect="node-7")
        wait(world, 60)
        assert [attempt.node for attempt in world.status.attempts] == ["node-7"] * blamed
        assert [node.name for node in world.status.excluded_nodes] == avoided
    world.close()


def test_nodes_that_do_not_pass_the_check_are_avoided_at_once() -> None:
    world = new_world()
    train(world, 3)
    world.end_driver(65, reason="LinkDown", nodes=("node-7", "node-9"))
    wait(world, 60)
    assert [(node.name, node.reason) for node in world.status.excluded_nodes] == [
        ("node-7", "LinkDown"),
        ("node-9", "LinkDown"),
    ]
    assert world.status.attempts[0].node == "node-7"
    world.close()


def test_the_cluster_of_a_failed_job_may_be_kept_and_that_of_a_good_one_goes() -> None:
    for code, kept in ((1, True), (0, False)):
        world = new_world(restart={"maxRestarts": 0}, cleanup={"clusterAfterSeconds": 600, "keepOnFailure": True})
        train(world)
        world.end_driver(code)
        wait(world)
        assert bool(world.cluster.objects(RAY_CLUSTER)) is kept
        wait(world, 601)
        assert world.cluster.objects(RAY_CLUSTER) == ()
        world.close()


def test_a_finished_job_may_go_after_its_time() -> None:
    world = new_world(cleanup={"jobAfterSeconds": 3600})
    finish(world)
    wait(world, 3000)
    assert exists(world)
    wait(world, 700)
    assert not exists(world)
    world.close()


def test_a_stalled_run_that_fails_by_itself_is_judged_by_its_own_words(world: World) -> None:
    train(world, 6, saves=True)
    wait(world, 901)
    world.end_driver(1)
    wait(world)
    assert (world.status.attempts[0].reason, world.status.counters.user_failures) == ("Ended", 1)
    finish(world)


def test_a_node_is_used_again_rather_than_none(world: World) -> None:
    for _ in range(2):
        train(world, 3)
        world.lose_head()
        wait(world, 60)
    assert [node.name for node in world.status.excluded_nodes] == ["node-1"]
    for _ in range(3):
        world.make_pods()
        wait(world, 300)
    assert world.status.counters.infrastructure_failures == 3
    assert world.status.excluded_nodes == []
    finish(world)
