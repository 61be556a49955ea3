"""Scenarios of a job, as data: what happens to it, in order, and how it ends. Each row is one scenario.

A scenario waits for states of the world, never for a number of rounds or seconds. So it can run while the operator is
stopped, its requests fail or its watches are wrong, and still has exactly one correct end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from builders import group, saving, small_spec
from property.operators import RESYNC_SECONDS
from property.world import CODE, World

from rljob.api.export_status import ExportState
from rljob.api.status import ConditionType, State
from rljob.cluster.kinds import DEPLOYMENT, POD, POD_GROUP, RAY_CLUSTER
from rljob.core.reasons import Reason
from rljob_runtime.contract import ExitCode, Phase

Act = Callable[[World], None]
STEPS = 40
PATIENT = {
    "deadlines": {"startSeconds": 86_400, "progressSeconds": 86_400},
    "stop": {"graceSeconds": 14_400},
}
"""No fault of these tests lasts this long, because a deadline that passes would be another scenario."""
SAVING = saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}})
ON_RECIPE = {"recipeRef": {"name": "base"}, "trainer": {"learningRate": None}}
RESTARTING = SAVING | {"restart": {"maxRestarts": 3, "maxInfrastructureRestarts": 3, "backoffSeconds": 10}}
ON_TWO_NODES = RESTARTING | {"workerGroups": [RESTARTING["workerGroups"][0] | {"nodes": 2}]}
GANG = {"scheduling": {"gang": "Volcano"}}
SHARED = {"services": [{"name": "judge", "image": "judge:1", "port": 8000, "placement": "Shared"}]}
PREPARED = {
    "initializers": [{"name": "make", "command": ["a"]}, {"name": "check", "command": ["b"]}],
    "code": {"type": "ConfigMap", "configMap": {"name": CODE}},
}


@dataclass(frozen=True)
class Scenario:
    """One row."""

    acts: tuple[Act, ...]
    ends: State | None
    """None: deleted."""
    spec: Mapping[str, Any] = field(default_factory=dict)
    """Changes of the small spec."""
    setting: Act | None = None
    """Objects that exist before the job."""

    def begin(self) -> World:
        """Return the world before the first act."""
        world = World(small_spec({**PATIENT, **self.spec}))
        world.put_recipe({"trainer": {"learningRate": "1e-5"}})
        if self.setting is not None:
            self.setting(world)
        return world

    def play(self, world: World) -> None:
        """Run the acts, and wait until the world settles."""
        for act in self.acts:
            act(world)
            if world.ex_leader is not None:
                world.ex_leader_sleeps -= 1
            if world.ex_leader_sleeps == 0:
                world.wake_ex_leader()
            world.until(_holds_nothing_astray)
        self.play_out(world)

    def play_out(self, world: World) -> None:
        """Wait until the world settles: frozen operators resume, and the next resync finds lost events."""
        world.until(lambda w: w.job is None or (w.is_finished and w.ray_cluster is None))
        world.wake_ex_leader()
        world.clock.advance(2 * RESYNC_SECONDS)
        world.resync()
        left = (RAY_CLUSTER, POD_GROUP, DEPLOYMENT)
        world.until(lambda w: not w.status.services and not any(w.cluster.objects(kind) for kind in left))


def trains(steps: int) -> Act:
    """Advance the run by some steps, and wait until the status shows it."""

    def act(world: World) -> None:
        world.until(_runs)
        world.run_driver(steps, saves=True)
        wanted = world.head.progress.step if world.head and world.head.progress else 0
        world.until(lambda w: w.status.progress is not None and w.status.progress.step == wanted)

    return act


def ends(code: ExitCode | int) -> Act:
    """End the driver."""

    def act(world: World) -> None:
        world.until(_runs)
        if code == ExitCode.DONE:
            world.run_driver(STEPS, saves=True)
        begun = len(world.status.attempts)
        world.end_driver(int(code))
        # After an outage the next attempt may have started before the check.
        world.until(lambda w: all(attempt.end_time for attempt in w.status.attempts[:begun]))

    return act


def ends_unheard(world: World) -> None:
    """Let the driver save and fail while its exporter is busy, so that Ray reports the end first."""
    world.until(_runs)
    world.ray.exporter_silent = True
    world.run_driver(2, saves=True)
    world.end_driver(1)
    begun = len(world.status.attempts)
    world.until(lambda w: w.status.ending is not None or all(a.end_time for a in w.status.attempts[:begun]))
    world.ray.exporter_silent = False
    world.until(lambda w: all(attempt.end_time for attempt in w.status.attempts[:begun]))
    assert world.status.checkpoint is not None
    assert world.status.checkpoint.step == world.saved_step, "the last save is unknown"


def suspends(world: World) -> None:
    """Suspend the job, and let the driver save and exit when it is asked to."""
    world.suspend()
    world.until(_is_asked_to_stop)
    world.end_driver(ExitCode.STOPPED)
    world.until(lambda w: w.condition(ConditionType.SUSPENDED) == "True")


def is_stopped_for_good(world: World) -> None:
    """Request the end of the job, and let the driver save and exit when it is asked to."""
    world.until(_runs)
    world.request_stop()
    world.until(_is_asked_to_stop)
    world.end_driver(ExitCode.STOPPED)
    world.until(lambda w: w.is_finished)


def is_stopped_while_suspended(world: World) -> None:
    """Request the end of a job that holds nothing."""
    world.request_stop()
    world.until(lambda w: w.is_finished)


def is_restarted(world: World) -> None:
    """Request a new cluster, and let the driver save and exit when it is asked to; it costs nothing."""
    world.until(_runs)
    before = world.status.intent.cluster_generation if world.status.intent else 0
    world.request_restart("now")
    world.until(_is_asked_to_stop)
    world.end_driver(ExitCode.STOPPED)
    world.until(lambda w: w.status.intent is not None and w.status.intent.cluster_generation == before + 1)
    assert (world.status.restarts, world.status.restart_request) == (0, "now")


def resumes(world: World) -> None:
    """Resume the job."""
    world.suspend(suspended=False)


def is_edited(world: World) -> None:
    """Change the steps, which the next generation uses."""
    world.edit_spec({**world.spec, "trainer": {**world.spec["trainer"], "steps": STEPS + 10}, "suspend": True})


def is_deleted(world: World) -> None:
    """Delete the job, and let the driver save if it is asked to."""
    world.until(_runs)
    world.delete_job()
    # Its time to save may pass during an outage; then it is not asked.
    world.until(lambda w: w.job is None or _is_asked_to_stop(w))
    world.end_driver(ExitCode.STOPPED)
    world.until(lambda w: w.job is None)


def is_created_again(world: World) -> None:
    """Create another job of the same name."""
    world.create_job()


def is_preempted(world: World) -> None:
    """Let Kueue suspend its RayCluster: the pods save before they end, and later it is admitted again."""
    world.until(_runs)
    world.queue_is_open = False
    world.suspend_cluster()
    world.until(_is_asked_to_stop)
    world.end_driver(ExitCode.STOPPED)
    world.lose_head()
    world.until(lambda w: w.status.counters.preemptions == 1)
    world.queue_is_open = True


def waits_for_volcano(world: World) -> None:
    """Find no room for all pods for longer than a start may take, and then find it."""
    world.volcano_is_open = False
    world.until(lambda w: w.status.state is State.QUEUED)
    world.clock.advance(2 * PATIENT["deadlines"]["startSeconds"])
    world.until(lambda w: w.status.state is State.QUEUED)
    assert world.head is None
    world.volcano_is_open = True


def stands_on(*nodes: str, taken: str | None = None) -> Act:
    """Give the cluster these nodes, each just large enough for a worker; one may be used by others."""

    def act(world: World) -> None:
        world.make_nodes(*nodes)
        world.taken = {taken} if taken else set()

    return act


def loses_a_device(world: World) -> None:
    """Make a device of its node unhealthy; the driver saves and exits when it is asked to."""
    world.until(_runs)
    assert world.worker_pod is not None
    world.set_devices(world.worker_pod["spec"]["nodeName"], 1)
    world.until(_is_asked_to_stop)
    world.end_driver(ExitCode.STOPPED)
    world.until(lambda w: all(attempt.end_time for attempt in w.status.attempts))


def waits_for_its_node(world: World) -> None:
    """Find no other node, and wait until the device is healthy again, at no cost to the budget."""
    world.until(lambda w: w.status.reason == Reason.WAITING_FOR_NODES)
    spent = world.status.budget
    for _ in range(20):
        world.pass_time()
        world.settle()
    assert (world.status.reason, world.status.budget) == (Reason.WAITING_FOR_NODES, spent)
    assert world.ray_cluster is None
    (avoided,) = world.status.excluded_nodes
    world.set_devices(avoided.name, 2)


def finds_half_of_its_nodes(world: World) -> None:
    """Release one node while the other one is in use: that is neither an attempt nor a restart."""
    world.until(lambda w: not w.taken)
    assert world.status.restarts == 0
    assert {attempt.number for attempt in world.status.attempts} <= {2}, "an attempt on half of the nodes"


def loses_its_head(world: World) -> None:
    """Delete the head pod."""
    world.until(_runs)
    world.lose_head()


def _without_workers(world: World, meanwhile: Act, lost: int = 1) -> set[str]:
    """Delete worker pods, whose places are taken until the run has ended; return the UIDs of the other pods."""
    world.until(_runs)
    first, nodes, others = world.submission, {world.lose_worker() for _ in range(lost)}, _uids(world)
    world.taken |= nodes
    world.until(_is_asked_to_stop)
    if first == world.submission:
        world.end_driver(ExitCode.STOPPED)
    meanwhile(world)
    world.taken -= nodes
    world.until(lambda w: w.status.attempts[0].end_time is not None)
    return others


def loses_a_worker(world: World) -> None:
    """Delete a worker pod: the driver ends when it is asked to, and the pods that are left stay."""
    assert _without_workers(world, lambda _: None) <= _uids(world)


def loses_both_workers(world: World) -> None:
    """Delete all worker pods: the head stays."""
    assert _without_workers(world, lambda _: None, lost=2) <= _uids(world)


def loses_a_worker_without_kuberay(world: World) -> None:
    """Delete a worker pod, which KubeRay replaces only after it was away for a while."""

    def goes(world: World) -> None:
        world.kuberay_is_up = False

    others = _without_workers(world, goes)
    for _ in range(3):
        world.pass_time()
        world.settle()
    world.kuberay_is_up = True
    assert others <= _uids(world)


def is_preempted_without_a_worker(world: World) -> None:
    """Delete a worker pod, and let Kueue take the place of the others before KubeRay replaces it."""

    def preempted(world: World) -> None:
        world.queue_is_open = False
        world.suspend_cluster()
        world.lose_head()
        world.until(lambda w: w.status.attempts[0].end_time is not None)
        world.queue_is_open = True

    _without_workers(world, preempted)


def is_suspended_without_a_worker(world: World) -> None:
    """Delete a worker pod, and suspend the job before KubeRay replaces it."""
    _without_workers(world, World.suspend)
    world.until(lambda w: w.condition(ConditionType.SUSPENDED) == "True")


def loses_its_cluster(world: World) -> None:
    """Delete the RayCluster."""
    world.until(_runs)
    world.delete_cluster()


def loses_its_status(world: World) -> None:
    """Lose the status, as after restoring a backup."""
    world.until(_runs)
    world.wipe_status()


def is_suspended_unseen(world: World) -> None:
    """Lose the status and suspend the job while no operator runs."""
    world.until(_runs)
    world.stop_operator()
    world.wipe_status()
    suspends(world)


def is_paused(world: World) -> None:
    """Pause the job for a while, in which its run ends."""
    world.pause()
    world.until(lambda w: w.condition(ConditionType.PAUSED) == "True")
    words = len(world.words)
    world.run_driver(STEPS, saves=True)
    world.end_driver(ExitCode.DONE)
    for _ in range(3):
        world.pass_time()
        world.settle()
    assert world.words[words:] == [], "the operator wrote to a paused job"
    world.pause(paused=False)
    world.until(lambda w: w.condition(ConditionType.PAUSED) == "False")


def sees_an_upgrade(world: World) -> None:
    """Replace the operator by one with another renderer."""
    world.until(_runs)
    world.upgrade()
    world.until(lambda w: w.condition(ConditionType.RENDERER_DRIFT) == "True")


def sees_a_downgrade(world: World) -> None:
    """Restore the previous operator, after which there is no drift."""
    world.downgrade()
    world.until(lambda w: w.condition(ConditionType.RENDERER_DRIFT) == "False")


def reports_its_save(world: World) -> None:
    """Report the last save, if the frozen spec has checkpoints."""
    saved = world.head.progress.checkpoint_step if world.head and world.head.progress else None
    assert saved
    world.until(lambda w: w.status.checkpoint is not None and w.status.checkpoint.step == saved)


def has_exported(world: World) -> None:
    """Export its last checkpoint after it has succeeded."""

    def ended(now: World) -> bool:
        export = now.status.export
        return export is not None and [entry.state for entry in export.steps] == [ExportState.SUCCEEDED]

    world.until(ended)


def sees_the_recipe_change(world: World) -> None:
    """Edit the recipe that the job is based on."""
    world.put_recipe({"trainer": {"learningRate": "1e-3"}})
    world.until(lambda w: w.condition(ConditionType.RECIPE_DRIFT) == "True")


def _uids(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.cluster.objects(POD)}


def _holds_nothing_astray(world: World) -> bool:
    """Return whether no cluster of a former leader is left, which would hold NPUs in any state."""
    return not {cluster["metadata"]["name"] for cluster in world.cluster.objects(RAY_CLUSTER)} & {
        *world.invariants.strays
    }


def _is_asked_to_stop(world: World) -> bool:
    return world.head is None or world.head.progress is None or world.head.progress.phase is Phase.STOPPING


def _runs(world: World) -> bool:
    """Return whether an attempt is recorded and its driver exists."""
    intent, ray_job = world.status.intent, world.submission
    if intent is None or ray_job is None or ray_job.state.ended:
        return False
    return any(a.submission_id == ray_job.submission_id and a.end_time is None for a in world.status.attempts)


def _on_two_nodes(*acts: Act, **spec: object) -> Scenario:
    return Scenario(acts, State.SUCCEEDED, ON_TWO_NODES | spec, stands_on("node-2", "node-3"))


SUCCEEDS = (trains(1), ends(0))
SCENARIOS: dict[str, Scenario] = {
    "create": Scenario(SUCCEEDS, State.SUCCEEDED, PREPARED),
    "create in a queue": Scenario(SUCCEEDS, State.SUCCEEDED, {"scheduling": {"queueName": "team"}}),
    "create in a gang": Scenario((waits_for_volcano, *SUCCEEDS), State.SUCCEEDED, GANG),
    "head death in a gang": Scenario((trains(3), loses_its_head, *SUCCEEDS), State.SUCCEEDED, RESTARTING | GANG),
    "suspend and resume a gang": Scenario(
        (trains(3), suspends, resumes, trains(5), ends(0)), State.SUCCEEDED, SAVING | GANG
    ),
    "share a service": Scenario(
        (trains(3), loses_its_head, trains(5), suspends, resumes, *SUCCEEDS), State.SUCCEEDED, RESTARTING | SHARED
    ),
    "fail": Scenario((trains(3), ends(1)), State.FAILED, {"restart": {"maxRestarts": 0}}),
    "suspend and resume": Scenario((trains(3), suspends, resumes, trains(5), ends(0)), State.SUCCEEDED, SAVING),
    "stop for good": Scenario((trains(3), is_stopped_for_good), State.STOPPED, SAVING),
    "stop while suspended": Scenario((trains(3), suspends, is_stopped_while_suspended), State.STOPPED, SAVING),
    "restart": Scenario((trains(3), is_restarted, trains(5), ends(0)), State.SUCCEEDED, SAVING),
    "suspend, edit and resume": Scenario(
        (trains(3), sees_the_recipe_change, suspends, is_edited, resumes, trains(5), ends(0)),
        State.SUCCEEDED,
        SAVING | ON_RECIPE,
    ),
    "suspend with a lost status": Scenario(
        (trains(3), is_suspended_unseen, resumes, trains(5), ends(0)), State.SUCCEEDED, SAVING
    ),
    "pause": Scenario((trains(3), is_paused), State.SUCCEEDED),
    "delete": Scenario((trains(3), is_deleted), None),
    "delete and create again": Scenario((trains(3), is_deleted, is_created_again, *SUCCEEDS), State.SUCCEEDED),
    "delete and save first": Scenario(
        (trains(3), is_deleted), None, SAVING | {"stop": PATIENT["stop"] | {"requireCheckpoint": True}}
    ),
    "fail and restart": Scenario((trains(3), ends(1), trains(5), ends(0)), State.SUCCEEDED, RESTARTING),
    "fail unheard": Scenario((trains(3), ends_unheard, trains(5), ends(0)), State.SUCCEEDED, RESTARTING),
    "fail twice": Scenario((trains(3), ends(1), trains(1), ends(67), *SUCCEEDS), State.SUCCEEDED, RESTARTING),
    "fail in the end": Scenario(
        (trains(3), ends(1), ends(1)), State.FAILED, RESTARTING | {"restart": {"maxRestarts": 1}}
    ),
    "preempt": Scenario(
        (trains(3), is_preempted, *SUCCEEDS), State.SUCCEEDED, RESTARTING | {"scheduling": {"queueName": "team"}}
    ),
    "device fault": Scenario(
        (trains(3), loses_a_device, *SUCCEEDS), State.SUCCEEDED, RESTARTING, stands_on("node-2", "node-3")
    ),
    "device fault, and no other node": Scenario(
        (trains(3), loses_a_device, waits_for_its_node, *SUCCEEDS), State.SUCCEEDED, RESTARTING, stands_on("node-2")
    ),
    "half of the nodes": Scenario(
        (finds_half_of_its_nodes, *SUCCEEDS),
        State.SUCCEEDED,
        group({"nodes": 2}),
        stands_on("node-2", "node-3", taken="node-3"),
    ),
    "head death": Scenario((trains(3), loses_its_head, *SUCCEEDS), State.SUCCEEDED, RESTARTING),
    "worker death": _on_two_nodes(trains(3), loses_a_worker, *SUCCEEDS),
    "worker death, then head death": _on_two_nodes(trains(3), loses_a_worker, loses_its_head, *SUCCEEDS),
    "worker death, suspended": _on_two_nodes(trains(3), is_suspended_without_a_worker, resumes, *SUCCEEDS),
    "death of both workers": _on_two_nodes(trains(3), loses_both_workers, *SUCCEEDS),
    "worker death without KubeRay": _on_two_nodes(trains(3), loses_a_worker_without_kuberay, *SUCCEEDS),
    "worker death, preempted": _on_two_nodes(
        trains(3), is_preempted_without_a_worker, *SUCCEEDS, scheduling={"queueName": "team"}
    ),
    "head death in the end": Scenario(
        (trains(3), loses_its_head), State.FAILED, {"restart": {"maxInfrastructureRestarts": 0}}
    ),
    "cluster deleted by hand": Scenario((trains(3), loses_its_cluster, *SUCCEEDS), State.SUCCEEDED, RESTARTING),
    "status lost": Scenario((trains(3), loses_its_status, *SUCCEEDS), State.SUCCEEDED),
    "fail, status lost": Scenario(
        (trains(3), ends(1), trains(5), loses_its_status, *SUCCEEDS), State.SUCCEEDED, RESTARTING
    ),
    "preempt, status lost": Scenario(
        (trains(3), is_preempted, trains(5), loses_its_status, *SUCCEEDS),
        State.SUCCEEDED,
        RESTARTING | {"scheduling": {"queueName": "team"}},
    ),
    "operator upgrade": Scenario((trains(3), sees_an_upgrade, trains(5), ends(0)), State.SUCCEEDED),
    "operator upgrade and downgrade": Scenario(
        (trains(3), sees_an_upgrade, trains(5), sees_a_downgrade, trains(5), reports_its_save, ends(0)),
        State.SUCCEEDED,
        SAVING,
    ),
    "export": Scenario(
        (trains(3), *SUCCEEDS, has_exported), State.SUCCEEDED, SAVING | {"export": {"to": {"path": "/data/models"}}}
    ),
    "head death, by default": Scenario((trains(3), loses_its_head, *SUCCEEDS), State.SUCCEEDED, SAVING),
}
