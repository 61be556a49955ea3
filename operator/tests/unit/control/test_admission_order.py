"""The order in which waiting jobs start: which jobs wait, and which are handled at once."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
from collections.abc import Generator
from typing import Any

import pytest
from builders import small_spec
from doubles.clock import FrozenClock
from doubles.fake import FakeCluster
from doubles.fake_ray import FakeRay
from doubles.simulate import settle
from machine import cluster_of

from rljob.cluster.kinds import RAY_CLUSTER, RL_RECIPE, RLJOB
from rljob.cluster.token import TokenKey
from rljob.control.admission_order import UNLOOKED_MAX, UNLOOKED_SECONDS
from rljob.control.pure_core import Core
from rljob.control.queue import Lane
from rljob.control.reconciler import Reconciler, Result
from rljob.control.store import Key
from rljob.control.worker import hold, work
from rljob.core.validation import validate as validation
from rljob.core.validation.validate import Checked
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN
from rljob.render.labels import PAUSED

CROWD = 60
TURN = 0.25
"""A time that adds up without rounding."""
PARTS = 10
"""Of a look that takes long."""


def in_line(reconciler: Reconciler) -> set[str]:
    """Return the uids of the jobs that were found ready to begin."""
    return {uid for uid, memory in reconciler.memories.by_uid.items() if memory.admission is not None}


class Scene:
    """The whole operator over fakes, and jobs that are created while it runs."""

    def __init__(self) -> None:
        self.clock = FrozenClock()
        self.cluster = FakeCluster(self.clock.now)
        self.reconciler = Reconciler.build(
            self.cluster, FakeRay(), self.clock, TokenKey(b"k" * 32), core=Core(LAUNCHER, BUILT_IN)
        )

    async def start(self) -> None:
        """Watch from the beginning, as in production."""
        await self.reconciler.prime()
        self.cluster.watch(self.reconciler.feed)

    def come(self, name: str, namespace: str = "team", **spec: Any) -> Key:  # noqa: ANN401 - a spec is JSON
        """Create a job as a user."""
        metadata = {"namespace": namespace, "name": name}
        wanted = small_spec() | spec
        self.cluster.put({"apiVersion": RLJOB.api_version, "kind": "RLJob", "metadata": metadata, "spec": wanted})
        return Key(namespace, name)

    def state(self, key: Key) -> tuple[str, str]:
        """Return the state of a job as a user sees it."""
        job = self.cluster.find(RLJOB, *key)
        assert job is not None
        status = job.get("status") or {}
        return status.get("state", ""), status.get("reason", "")

    def begun(self) -> int:
        """Return the number of clusters."""
        return len(self.cluster.objects(RAY_CLUSTER))

    def kuberay_looks(self) -> None:
        """Give every cluster a status, as KubeRay does."""
        for cluster in self.cluster.objects(RAY_CLUSTER):
            metadata = cluster["metadata"]
            self.cluster.edit(
                RAY_CLUSTER, metadata["namespace"], metadata["name"], lambda each: each.update(status={"state": ""})
            )

    async def settle(self) -> None:
        """Work until nothing is left to do, with KubeRay beside it."""
        made = -1
        while self.begun() > made:
            made = self.begun()
            await settle(self.reconciler)
            self.kuberay_looks()

    async def take(self, turns: int) -> None:
        """Run one worker for that many turns."""
        for _ in range(turns):
            key = self.reconciler.queue.get_nowait()
            assert key is not None
            await hold(self.reconciler, key)
            self.reconciler.queue.done(key)

    async def look_at_all(self) -> None:
        """Create many jobs, and reconcile each once."""
        for number in range(CROWD):
            self.come(f"job-{number}")
        while len(in_line(self.reconciler)) < CROWD:
            await self.take(1)


@pytest.fixture
async def scene() -> Scene:
    """Return an operator that watches an empty world."""
    made = Scene()
    await made.start()
    return made


async def test_a_job_of_a_crowd_is_looked_at_long_before_its_turn_to_begin(scene: Scene) -> None:
    for number in range(CROWD):
        scene.come(f"job-{number}")
    wrong = scene.come("wrong", trainer={"steps": -1})
    idle = scene.come("idle", suspend=True)
    await scene.take(CROWD + 3)
    assert scene.state(wrong) == ("Invalid", "InvalidSpec")
    assert scene.state(idle)[0] == "Suspended"
    # Other jobs have hardly started meanwhile; for each of them, all would have to wait.
    assert scene.begun() <= 1
    await scene.settle()
    assert scene.begun() == CROWD


async def test_they_begin_in_the_order_in_which_they_came(scene: Scene) -> None:
    await scene.look_at_all()
    await scene.take(5)
    made = [cluster["metadata"]["ownerReferences"][0]["name"] for cluster in scene.cluster.objects(RAY_CLUSTER)]
    assert len(made) >= 5
    assert sorted(made) == sorted(f"job-{number}" for number in range(len(made)))


async def test_a_job_of_another_team_does_not_wait_for_a_whole_sweep(scene: Scene) -> None:
    await scene.look_at_all()
    before = scene.begun()
    alone = scene.come("alone", namespace="others")
    turns = 0
    while scene.state(alone)[0] != "Starting":
        await scene.take(1)
        turns += 1
    # A first reconciliation, its turn, and meanwhile the work for jobs of the sweep that have started.
    assert turns < 16
    assert scene.begun() <= before + 3


async def test_no_more_begin_than_kuberay_has_to_look_at(scene: Scene) -> None:
    await scene.look_at_all()
    await settle(scene.reconciler)
    assert scene.begun() == UNLOOKED_MAX
    alone = scene.come("alone", namespace="others")
    await settle(scene.reconciler)
    assert scene.state(alone)[0] == "Starting"
    first = next(
        meta for each in scene.cluster.objects(RAY_CLUSTER) if (meta := each["metadata"])["namespace"] == "team"
    )
    scene.cluster.edit(RAY_CLUSTER, first["namespace"], first["name"], lambda each: each.update(status={"state": ""}))
    await settle(scene.reconciler)
    assert scene.begun() == UNLOOKED_MAX + 2
    # One that is deleted before KubeRay looks at it is not waited for any more, nor are the others forever.
    for number in (1, 2):
        scene.cluster.remove(RLJOB, "team", f"job-{number}")
    await settle(scene.reconciler)
    assert scene.begun() == UNLOOKED_MAX + 2
    scene.clock.advance(UNLOOKED_SECONDS + 1)
    await settle(scene.reconciler)
    assert scene.begun() == CROWD - 1


async def test_one_with_many_before_it_is_told_that_it_waits(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    told = ("Pending", "WaitingForTurn")
    await scene.look_at_all()
    states = [scene.state(Key("team", f"job-{number}")) for number in range(CROWD)]
    # As many as KubeRay may have before it will begin soon.
    assert states == [("", "")] * UNLOOKED_MAX + [told] * (CROWD - UNLOOKED_MAX)
    last = Key("team", f"job-{CROWD - 1}")
    edited = scene.cluster.edit(RLJOB, *last, lambda job: job["spec"]["trainer"].update(steps=7))
    await scene.take(2)
    assert scene.cluster.find(RLJOB, *last) == edited, "it is written once"
    monkeypatch.setattr("rljob.control.reconciler.TOLD_FROM", 1)
    other = scene.come("other", namespace="others")
    while scene.reconciler.line.lane_of(other) is Lane.NEW:
        await scene.take(1)
    assert scene.state(other) == told, "many of other namespaces are before it"
    await scene.settle()
    assert scene.begun() == CROWD + 1


async def test_one_that_stands_in_line_is_answered_at_once_when_it_is_changed(scene: Scene) -> None:
    await scene.look_at_all()
    last = Key("team", f"job-{CROWD - 1}")
    scene.cluster.edit(RLJOB, *last, lambda job: job["spec"].update(suspend=True))
    await scene.take(2)
    assert scene.state(last)[0] == "Suspended"
    scene.cluster.edit(RLJOB, *last, lambda job: job["spec"].update(suspend=False))
    await scene.take(2)
    assert scene.reconciler.line.lane_of(last) is Lane.TO_BEGIN


async def test_a_label_does_not_cost_a_job_its_place(scene: Scene) -> None:
    await scene.look_at_all()
    last = Key("team", f"job-{CROWD - 1}")
    scene.cluster.edit(RLJOB, *last, lambda job: job["metadata"].update(labels={"team": "a"}))
    assert scene.reconciler.line.lane_of(last) is Lane.TO_BEGIN
    scene.cluster.edit(RLJOB, *last, lambda job: job["metadata"].update(annotations={PAUSED: "true"}))
    assert scene.reconciler.line.lane_of(last) is Lane.NEW


async def test_a_waiting_job_whose_recipe_is_deleted_becomes_invalid_at_once(scene: Scene) -> None:
    recipe = {"apiVersion": RL_RECIPE.api_version, "kind": RL_RECIPE.kind, "spec": {"template": {}}}
    scene.cluster.put(recipe | {"metadata": {"namespace": "team", "name": "base"}})
    for number in range(CROWD):
        scene.come(f"job-{number}")
    last = scene.come("last", recipeRef={"kind": RL_RECIPE.kind, "name": "base"})
    while len(in_line(scene.reconciler)) <= CROWD:
        await scene.take(1)
    scene.cluster.remove(RL_RECIPE, "team", "base")
    await scene.take(2)
    assert scene.state(last) == ("Invalid", "InvalidSpec")


async def test_a_crowd_of_looks_leaves_the_loop_to_others(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rljob.control.turns.TURN_SECONDS", TURN)
    for number in range(CROWD):
        # So few of each namespace that none gets a status about its turn, for which a worker would wait here.
        scene.come(f"job-{number}", namespace=f"team-{number % 4}")
    answered = asyncio.Event()

    async def gate(_: object) -> None:
        await answered.wait()

    # Half of the workers wait for an API server that does not answer; the others only have first reconciliations to do.
    scene.cluster.gate = gate
    begins = scene.reconciler.core.begins

    def slow(*facts: Any) -> Generator[None, None, bool]:  # noqa: ANN401 - as the function it replaces
        for _ in range(PARTS):
            scene.clock.advance(TURN / 4)
            yield
        return (yield from begins(*facts))

    scene.reconciler.core = dataclasses.replace(scene.reconciler.core, begins=slow)
    turns = [0.0]
    workers = asyncio.create_task(work(scene.reconciler, 16))
    async with asyncio.timeout(30):
        while len(in_line(scene.reconciler)) < CROWD:
            await asyncio.sleep(0)
            turns.append(scene.clock.seconds)
    answered.set()
    workers.cancel()
    with pytest.raises(asyncio.CancelledError):
        await workers
    # 4 workers look at new jobs; inside of a look and between looks, whatever the worker, the loop turns.
    assert scene.clock.seconds == CROWD * PARTS * TURN / 4
    assert max(later - earlier for earlier, later in itertools.pairwise(turns)) == TURN


async def test_a_recipe_that_changes_during_a_look_leads_to_another_one(scene: Scene) -> None:
    recipe = {"apiVersion": RL_RECIPE.api_version, "kind": RL_RECIPE.kind, "spec": {"template": {}}}
    scene.cluster.put(recipe | {"metadata": {"namespace": "team", "name": "base"}})
    key = scene.come("sums", recipeRef={"kind": RL_RECIPE.kind, "name": "base"})
    begins = scene.reconciler.core.begins

    def changing(*facts: Any) -> Generator[None, None, bool]:  # noqa: ANN401 - as the function it replaces
        found = yield from begins(*facts)
        scene.cluster.remove(RL_RECIPE, "team", "base")
        return found

    scene.reconciler.core = dataclasses.replace(scene.reconciler.core, begins=changing)
    assert await scene.reconciler.round(key) is Result.LINED_UP
    assert scene.reconciler.line.lane_of(key) is Lane.NEW


async def test_one_that_is_deleted_leaves_the_line(scene: Scene) -> None:
    await scene.look_at_all()
    last = Key("team", f"job-{CROWD - 1}")
    uids = scene.reconciler.store.uids(RLJOB)
    scene.cluster.remove(RLJOB, *last)
    await scene.settle()
    assert scene.begun() == CROWD - 1
    assert in_line(scene.reconciler) == uids
    scene.reconciler.forget_gone()
    assert in_line(scene.reconciler) == scene.reconciler.store.uids(RLJOB)


async def test_a_job_is_validated_once_until_something_is_frozen(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def counted(name: str, *facts: Any, **wired: Any) -> Generator[None, None, Checked]:  # noqa: ANN401 - the same
        calls.append(name)
        return validation.validating(name, *facts, **wired)

    monkeypatch.setattr("rljob.core.context.validating", counted)
    scene.come("sums")
    await settle(scene.reconciler)
    assert (scene.begun(), calls) == (1, ["sums"])


async def test_one_with_a_cluster_stands_in_no_line_although_its_status_is_lost(scene: Scene) -> None:
    key = scene.come("sums")
    job = scene.cluster.find(RLJOB, *key)
    assert job is not None
    assert scene.reconciler.line.lane_of(key) is Lane.NEW
    scene.cluster.put(cluster_of(job))
    assert scene.reconciler.line.lane_of(key) is Lane.BEGUN


async def test_the_round_that_queues_a_job_has_a_result_of_its_own(scene: Scene) -> None:
    key = scene.come("sums")
    assert await scene.reconciler.round(key) is Result.LINED_UP
    assert await scene.reconciler.round(key) is Result.WROTE
    assert scene.reconciler.line.lane_of(key) is Lane.BEGUN
