"""Any order of events: hypothesis acts as user, KubeRay, kubelet, driver, network and faults on the real operator.

`world` checks the invariants of single writes. This module checks those at rest: with time frozen the operator settles,
it never waits for something that nothing will report, and when faults end, the job ends.
"""

from functools import partial
from typing import Any

import pytest
from builders import merged, saving, small_spec
from doubles.fake import Failure
from hypothesis import HealthCheck, event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from property.chaos import FULL, HISTORIES, STATISTICS
from property.world import KEY, World
from schema_check import violations

from rljob.api.crd import build_rljob_crd
from rljob.api.status import State
from rljob.cluster.errors import Conflict, OutcomeUnknown, RateLimited, Unavailable
from rljob.cluster.kinds import RLJOB

STEPS = 20
STATUS_SCHEMA = build_rljob_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
SPECS: dict[str, dict[str, Any]] = {
    "plain": {},
    "initializers": {"initializers": [{"name": "make", "command": ["a"]}, {"name": "check", "command": ["b"]}]},
    "code": {"code": {"type": "ConfigMap", "configMap": {"name": "code"}}},
    "no code": {"code": {"type": "ConfigMap", "configMap": {"name": "none"}}},
    "queued": {"scheduling": {"queueName": "team"}},
    "gang": {"scheduling": {"gang": "Volcano"}},
    "lingering": {"cleanup": {"clusterAfterSeconds": 600}},
    "other": {"trainer": {"steps": 40, "learningRate": "1e-4"}},
    "hasty": {"deadlines": {"startSeconds": 60, "progressSeconds": 600, "activeSeconds": 3600}},
    "two nodes": {"workerGroups": [{"name": "trainer", "nodes": 2, "devicesPerNode": 2}]},
    "indivisible": {"trainer": {"globalBatchSize": 33, "samplesPerPrompt": 7}},
    "of a wrong type": {"trainer": {"steps": "many"}, "deadlines": {"startSeconds": -1}},
    "alien": {"madeUp": True},
    "on a recipe": {"recipeRef": {"name": "base"}},
    "saving": saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "stop": {"graceSeconds": 60}}),
    "holding": saving(
        {
            "checkpoint": {"path": "/data/saves", "everySteps": 5},
            "stop": {"graceSeconds": 60, "requireCheckpoint": True},
        }
    ),
    "suspended": {"suspend": True},
    "restarting": saving(
        {
            "checkpoint": {"path": "/data/saves", "everySteps": 5},
            "restart": {"maxRestarts": 3, "maxInfrastructureRestarts": 5, "backoffSeconds": 20},
        }
    ),
}
TROUBLES: dict[str, dict[str, Any]] = {
    "unschedulable": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    "no image": {"containerStatuses": [{"name": "ray", "state": {"waiting": {"reason": "ErrImagePull"}}}]},
    "crashed": {"containerStatuses": [{"name": "ray", "state": {"terminated": {"exitCode": 1}}}]},
    "slow": {},
}
FAULTS = {
    "down": Failure(Unavailable("down")),
    "unanswered": Failure(OutcomeUnknown("lost"), committed=True),
    "conflict": Failure(Conflict("modified")),
    "limited": Failure(RateLimited("slower", retry_after_seconds=3.0)),
}


class JobMachine(RuleBasedStateMachine):
    """One job, one operator, any history."""

    world: World

    @initialize(spec=st.sampled_from(sorted(SPECS)), stage=st.integers(0, 6))
    def create(self, spec: str, stage: int) -> None:
        """Start at any point of a life; by chance alone, hardly any history would reach training."""
        STATISTICS["examples: histories of the state machine"] += 1
        self.world = world = World(merged(small_spec(), SPECS[spec]))
        train = partial(world.run_driver, steps=2)
        way = (world.end_initializers, world.end_initializers, world.admit, world.make_ready, train, train)
        for advance in way[:stage]:
            world.settle()
            advance()
            world.clock.advance(5)

    # The operator.

    @rule()
    def work(self) -> None:
        self.world.settle()

    @rule(writes=st.integers(1, 4))
    def crash_after(self, writes: int) -> None:
        last = len(self.world.words) + writes
        self.world.stops = lambda write: write == last
        self.world.settle()

    @rule()
    def restart(self) -> None:
        self.world.stop_operator()
        self.world.settle()

    @precondition(lambda self: self.world.ex_leader is None)
    @rule(writes=st.integers(1, 4))
    def freeze_before(self, writes: int) -> None:
        self.world.freezes_at = self.world.tried + writes
        self.world.settle()

    @precondition(lambda self: self.world.ex_leader is not None)
    @rule()
    def wake_ex_leader(self) -> None:
        self.world.wake_ex_leader()

    @rule(seconds=st.sampled_from([1, 5, 30, 61, 601, 3_700, 20_000]))
    def let_time_pass(self, seconds: int) -> None:
        self.world.clock.advance(seconds)
        self.world.settle()

    # The user.

    @rule(spec=st.sampled_from(sorted(SPECS)))
    def edit(self, spec: str) -> None:
        self.world.edit_spec(merged(small_spec(), SPECS[spec]))

    @rule(suspended=st.booleans())
    def suspend(self, *, suspended: bool) -> None:
        self.world.suspend(suspended=suspended)

    @rule(requested=st.booleans(), sure=st.integers(0, 3))
    def request_stop(self, sure: int, *, requested: bool) -> None:
        # Rarely, because it ends most histories.
        if sure == 3:
            self.world.request_stop(requested=requested)

    @rule(value=st.sampled_from(["a", "b"]))
    def request_restart(self, value: str) -> None:
        self.world.request_restart(value)

    @rule(value=st.sampled_from(["a", "b"]))
    def refresh(self, value: str) -> None:
        self.world.refresh(value)

    @rule(rate=st.sampled_from(["1e-5", "1e-3", "nonsense"]))
    def edit_recipe(self, rate: str) -> None:
        self.world.put_recipe({"trainer": {"learningRate": rate}})

    @rule()
    def delete_recipe(self) -> None:
        self.world.delete_recipe()

    @rule()
    def wipe(self) -> None:
        self.world.wipe_status()

    @rule()
    def delete_cluster(self) -> None:
        self.world.delete_cluster()

    @precondition(lambda self: self.world.job is not None)
    @rule(sure=st.integers(0, 9))
    def delete_job(self, sure: int) -> None:
        # Rarely, because most histories would be short otherwise.
        if sure == 9:
            self.world.delete_job()

    @rule()
    def force_deletion(self) -> None:
        self.world.force_deletion()

    # Kubernetes.

    @rule(well=st.booleans())
    def end_initializers(self, *, well: bool) -> None:
        self.world.end_initializers(well=well)

    @rule()
    def admit(self) -> None:
        self.world.admit()

    @rule()
    def suspend_cluster(self) -> None:
        self.world.suspend_cluster()

    @rule(node_fault=st.sampled_from(sorted(TROUBLES)))
    def hold_up(self, node_fault: str) -> None:
        self.world.hold_up(**TROUBLES[node_fault])

    @rule()
    def make_ready(self) -> None:
        self.world.make_ready()

    @rule()
    def lose_head(self) -> None:
        self.world.lose_head()

    @rule(fault=st.sampled_from(sorted(FAULTS)), calls=st.integers(1, 2))
    def fail_writes(self, fault: str, calls: int) -> None:
        left = iter(range(calls))
        self.world.request_faults[:] = [
            lambda request: FAULTS[fault] if request.writes and next(left, None) is not None else None
        ]

    @rule()
    def hold_events(self) -> None:
        self.world.watch.held = True

    @rule(doubled=st.booleans())
    def release_events(self, *, doubled: bool) -> None:
        self.world.watch.release(doubled=doubled)

    # The driver.

    @rule(steps=st.integers(0, 40), saves=st.booleans())
    def run_driver(self, steps: int, *, saves: bool) -> None:
        self.world.run_driver(steps, saves=saves)

    @rule(code=st.sampled_from([0, 1, 64, 65, 66, 67, 68, 137]), reported=st.booleans())
    def end_driver(self, code: int, *, reported: bool) -> None:
        self.world.end_driver(code, reported=reported)

    # A frozen leader's POST may be in flight: Ray knows it only by its ID, and accepts it as new after forgetting that.
    @precondition(lambda self: self.world.ex_leader is None)
    @rule()
    def forget_submission(self) -> None:
        self.world.forget_submission()

    @rule(exporter=st.booleans(), api=st.booleans())
    def silence(self, *, exporter: bool, api: bool) -> None:
        self.world.ray.exporter_silent, self.world.ray.api_silent = exporter, api

    # Invariants at rest.

    @invariant()
    def the_status_fits_the_crd(self) -> None:
        if (job := self.world.job) is not None and "status" in job:
            assert list(violations(STATUS_SCHEMA, job["status"])) == []

    @invariant()
    def an_active_job_always_has_a_next_round(self) -> None:
        world = self.world
        if world.watch.held:
            return
        world.settle()
        if world.job is None or world.operator is None or world.status.state is State.INVALID:
            return
        if world.is_finished and world.ray_cluster is None:
            return
        if world.status.state is State.SUSPENDED:
            assert world.retry_pending or world.ray_cluster is None, "NPUs are held by a suspended job"
            return
        assert world.operator.queue.next_due_seconds() is not None, f"hangs at {world.status}"
        if (found := world.ray_cluster) is not None and not world.retry_pending and not world.is_finished:
            assert world.status.intent is not None
            # The first observation contains its UID, and nothing is submitted to it before.
            known = world.status.intent.cluster_uid in ((None,) if world.status.intent.attempt == 0 else ())
            assert known or world.status.intent.cluster_uid == found["metadata"]["uid"], "a cluster that is unknown"

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        event(f"left as {self.world.status.state if self.world.job else 'deleted'}")
        try:
            self.end_well()
        finally:
            self.world.close()

    def end_well(self) -> None:
        """End all faults: a valid job ends, its cluster is deleted, and then nothing is written."""
        world = self.world
        world.watch.release()
        world.freezes_at = None
        world.wake_ex_leader()
        world.request_faults.clear()
        world.ray.exporter_silent = world.ray.api_silent = False
        if world.job is not None and "deletionTimestamp" in world.job["metadata"]:
            world.clock.advance(700)
            world.settle()
            world.clock.advance(700)
            world.settle()
            assert world.job is None, f"a deleted job hangs: {world.status}"
        world.edit_spec(small_spec())
        for _ in range(16):
            world.clock.advance(700)
            world.settle()
            world.end_initializers()
            world.admit()
            world.make_ready()
            world.run_driver(steps=5)
            world.clock.advance(10)
            world.settle()
        world.end_driver(0)
        world.clock.advance(700)
        world.settle()
        if world.job is not None:
            assert world.is_finished, f"never ends: {world.status}"
        assert world.ray_cluster is None, "NPUs are held for nothing"
        version = (world.job or {}).get("metadata")
        world.stop_operator()
        world.clock.advance(100_000)
        world.settle()
        assert (world.job or {}).get("metadata") == version, "a finished job was written"
        assert world.cluster.find(RLJOB, *KEY) == world.job


def test_a_stop_that_ends_when_it_is_taken_back_and_the_next_attempt_share_a_moment() -> None:
    state = JobMachine()
    state.create(spec="holding", stage=4)
    state.suspend(suspended=True)
    state.world.settle()
    try:
        state.end_well()
    finally:
        state.world.close()


def test_a_cluster_that_an_ex_leader_makes_while_the_status_is_lost_is_the_jobs_own() -> None:
    state = JobMachine()
    state.create(spec="gang", stage=0)
    state.delete_cluster()
    state.freeze_before(writes=2)
    state.wipe()
    state.work()
    state.suspend(suspended=True)
    state.work()
    state.wipe()
    try:
        state.end_well()
    finally:
        state.world.close()
    assert not state.world.invariants.strays


def test_a_cluster_that_an_ex_leader_makes_for_a_job_whose_start_has_timed_out_goes_again() -> None:
    state = JobMachine()
    state.create(spec="gang", stage=0)
    state.work()
    state.delete_cluster()
    state.freeze_before(writes=1)
    state.let_time_pass(seconds=3700)
    assert state.world.is_finished
    try:
        state.end_well()
    finally:
        state.world.close()
    assert len(state.world.invariants.strays) == 1


# The unit tests alone reach every branch; measuring coverage here would cost minutes.
TestJobMachine = pytest.mark.no_cover(JobMachine.TestCase)
TestJobMachine.settings = settings(
    max_examples=HISTORIES,
    stateful_step_count=STEPS,
    deadline=None,
    database=None,
    # Tests that decide about a merge must not be random; `make chaos` searches further.
    derandomize=not FULL,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
