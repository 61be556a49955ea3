"""Heads that end before they are ready, in the whole world: a few of them end the job, whatever stops the operator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from builders import merged, small_spec
from hypothesis import given, settings
from hypothesis import strategies as st
from property.test_evidence import kept
from property.test_restarting import RESTARTING, finish, new_world, train, wait
from property.world import KEY, World

from rljob.api.status import FailureCause, State
from rljob.cluster.kinds import EVENT, RAY_CLUSTER
from rljob.core.attempts.container_failures import IDENTICAL_ENDS

# The unit tests alone reach every branch.
pytestmark = pytest.mark.no_cover

LINE = "bash: ray: command not found"
REASON = "ContainerCannotStart"
ENDS_AT_MOST = 12


@pytest.fixture
def world() -> Iterator[World]:
    made = new_world()
    yield made
    made.close()


def begin(world: World) -> None:
    """Advance to a cluster that starts."""
    while world.ray_cluster is None:
        wait(world)
    wait(world, 15)


def test_an_image_without_ray_ends_the_job_after_a_few_heads_and_frees_the_devices(world: World) -> None:
    begin(world)
    for _ in range(IDENTICAL_ENDS):
        assert world.status.state is not State.FAILED
        world.fail_head(127, LINE)
        wait(world, 20)
    status = world.status
    assert (status.state, status.reason) == (State.FAILED, REASON)
    assert f"exit code 127: {LINE}" in str(status.message)
    (attempt,) = status.attempts
    assert (attempt.reason, attempt.cause) == (REASON, FailureCause.CONFIGURATION)
    assert list(kept(world)) == ["attempt-1.json"]
    assert world.cluster.objects(RAY_CLUSTER) == ()
    assert world.pods_made == IDENTICAL_ENDS


def test_the_count_survives_the_operator(world: World) -> None:
    begin(world)
    for _ in range(IDENTICAL_ENDS):
        world.fail_head(127, LINE)
        wait(world, 20)
        world.stop_operator()
        wait(world, 15)
    assert (world.status.state, world.status.reason) == (State.FAILED, REASON)


def test_a_head_that_starts_in_the_end_runs_and_a_later_start_counts_from_zero(world: World) -> None:
    begin(world)
    for _ in range(IDENTICAL_ENDS - 1):
        world.fail_head(127, LINE)
        wait(world, 20)
    assert world.status.reason == "ContainerFailed"
    train(world)
    intent = world.status.intent
    assert intent is not None
    assert intent.container_failures == []
    finish(world)


def test_a_job_that_has_trained_is_not_given_up_for_its_image(world: World) -> None:
    train(world, 6, saves=True)
    world.lose_head()
    begin(world)
    while world.status.intent is None or world.status.intent.cluster_generation < 2 or world.ray_cluster is None:
        wait(world)
    wait(world, 15)
    for _ in range(IDENTICAL_ENDS + 2):
        world.fail_head(127, LINE)
        wait(world, 20)
    assert world.status.state is not State.FAILED
    assert "at least 3 times" in str(world.status.message)
    finish(world)


@settings(max_examples=25, deadline=None)
@given(
    ends=st.lists(
        st.tuples(st.sampled_from((1, 127, 137, 143)), st.sampled_from((5, 30, 90)), st.booleans()),
        max_size=ENDS_AT_MOST,
    )
)
def test_only_enough_identical_ends_end_a_job(ends: list[tuple[int, int, bool]]) -> None:
    world = World(small_spec(merged(RESTARTING, {"deadlines": {"startSeconds": 3600}})))
    begin(world)
    seen: Counter[int] = Counter()
    for code, seconds, stops in ends:
        world.fail_head(code, LINE)
        seen[code] += 1
        wait(world, seconds)
        if stops:
            world.stop_operator()
        if world.status.state is State.FAILED:
            # Code 1 of Ray may be the fault of a node, the others are signals.
            assert world.status.reason == REASON
            assert seen[127] >= IDENTICAL_ENDS
            break
    else:
        # Ends that are far enough apart are all counted, unless the operator was away when the pod vanished.
        far = [code for code, seconds, _ in ends if seconds >= 30]
        assert far.count(127) < IDENTICAL_ENDS or any(stops for *_, stops in ends)
        finish(world)
    world.close()


def test_an_initializer_whose_pod_is_refused_is_reported_and_ends_at_the_start_deadline() -> None:
    world = World(small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]}))
    wait(world)
    wait(world, 20)
    name = "sums-00000-prepare"
    note = 'Error creating: pods "x" is forbidden: failed quota: compute: must specify limits.cpu'
    world.cluster.put(
        {
            "apiVersion": EVENT.api_version,
            "kind": "Event",
            "metadata": {"namespace": KEY.namespace, "name": "e"},
            "type": "Warning",
            "reason": "FailedCreate",
            "note": note,
            "regarding": {"kind": "Job", "name": name},
        }
    )
    wait(world, 60)
    wait(world)
    assert (world.status.state, world.status.reason) == (State.INITIALIZING, "PodsRefused")
    assert world.status.message == f"initializer prepare: {note}"
    for _ in range(40):
        wait(world, 60)
    assert (world.status.state, world.status.reason) == (State.FAILED, "StartDeadlineExceeded")
    assert note in str(world.status.message)
    world.close()
