"""A worker pod that is gone: the run ends at once, and the next attempt begins in the same cluster."""

from __future__ import annotations

from typing import Any

import pytest
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
    saving,
    small_spec,
    snapshot,
    status_after,
    status_training,
    wrote,
)

from rljob.api.status import State
from rljob.core import times
from rljob.core.observed import UNSEEN, Manifest, Observed
from rljob.core.plan import Plan, StopRun
from rljob.core.scheduling.node_faults import Held
from rljob.render.labels import RAY_GROUP, RAY_NODE_TYPE
from rljob_runtime.contract import Outcome, Phase, StopMode

SPEC = small_spec(
    saving({"checkpoint": {"path": "/data/saves", "everySteps": 5}, "restart": {"maxInfrastructureRestarts": 2}})
)
RUNNING: Json = {"name": "ray-worker", "state": {"running": {}}}
WAITING: Json = {"name": "ray-worker", "state": {"waiting": {"reason": "PodInitializing"}}}
ENDED: Json = {"name": "ray-worker", "state": {"terminated": {"reason": "Error", "exitCode": 1}}}


def worker(container: Json = RUNNING, *, ready: bool | None = None, **metadata: object) -> Manifest:
    name = SPEC["workerGroups"][0].get("name", "workers")
    made = pod("worker", "worker-uid", ready=container is RUNNING if ready is None else ready)
    made["metadata"] |= {"labels": {RAY_NODE_TYPE: "worker", RAY_GROUP: name}, **metadata}
    made["spec"], made["status"]["containerStatuses"] = {"nodeName": "node-7"}, [container]
    return made


def world(*pods: Manifest, ready: int = 0, status: Json | None = None, **facts: Any) -> Observed:  # noqa: ANN401 - fields of Observed
    known = {"snapshot": snapshot(SPEC), "progress": answer(), "pods": pods, "clusters": (cluster(ready=ready),)}
    return running(job=job(SPEC, status or status_training()), **(known | facts))


@pytest.mark.parametrize(
    ("pods", "lost"),
    [
        ((), True),
        ((worker(WAITING),), True),
        ((worker(ENDED, ready=False),), True),
        ((worker(),), False),
        # It saves: its hook has asked the run to stop.
        ((worker(deletionTimestamp=times.to_text(at(300))),), False),
    ],
)
def test_a_run_ends_when_a_worker_is_gone_and_kuberay_has_counted(pods: tuple[Manifest, ...], lost: bool) -> None:
    stop = wrote(plan).stop if (plan := decide(world(*pods))).status is not None else None
    assert (stop is not None and stop.reason == "WorkerLost") == lost
    # Neither an old count nor a LIST that failed proves it.
    assert "WorkerLost" not in str(decide(world(*pods, ready=1)))
    assert "WorkerLost" not in str(decide(world(pods=UNSEEN)))


def test_the_end_is_immediate_and_names_the_node() -> None:
    plan = decide(world(held=(Held("node-7", works=True), Held("node-1", works=False))))
    status = wrote(plan)
    assert status.stop is not None
    assert (status.stop.mode, status.stop.nodes, status.state) == ("Immediate", ["node-7"], State.STOPPING)
    assert status.message == (
        "1 worker pod of sums-0a1b2-1 on node-7 is gone; the run cannot continue without it; "
        "the run is ended immediately"
    )
    asked = decide(world(status=status_after(plan)))
    assert [(type(effect), effect.mode) for effect in asked.effects if isinstance(effect, StopRun)] == [
        (StopRun, StopMode.IMMEDIATE)
    ]


def ended(*pods: Manifest, outcome: Outcome | None = None, **facts: Any) -> Plan:  # noqa: ANN401 - fields of Observed
    """Return what follows the end of a run whose worker was lost."""
    stopped = status_after(decide(world(held=(Held("node-7", works=True),))))
    told = answer({"phase": Phase.ENDED, "outcome": outcome or Outcome(66, "Stopped", "stopped at once", last_step=3)})
    return decide(world(*pods, status=stopped, **({"progress": told} | facts)), seconds=2)


def test_the_next_attempt_waits_for_nothing_but_the_replacement() -> None:
    status = wrote(plan := ended(worker(WAITING)))
    attempt, intent = status.attempts[0], status.intent
    assert (attempt.outcome, attempt.reason, attempt.cause, attempt.node) == (
        "Failed",
        "WorkerLost",
        "Infrastructure",
        "node-7",
    )
    assert (attempt.last_step_time, attempt.stop_time) == (times.to_text(NOW), times.to_text(NOW))
    assert (status.stop, status.next_attempt_time) == (None, times.to_text(at(2)))
    assert intent is not None
    assert (intent.attempt, intent.awaits_workers, intent.cluster_uid) == (0, True, "cluster-uid")
    assert "restarting in the same cluster, whose other pods stay, at" in str(status.message)

    def then(*pods: Manifest, ready: int) -> Plan:
        return decide(world(*pods, ready=ready, status=status_after(plan), progress=answer()), seconds=3)

    # What KubeRay has counted may be older than the loss, and a worker that saves is still Ready.
    leaves = worker(deletionTimestamp=times.to_text(at(300)))
    for pods, ready in (((worker(WAITING),), 1), ((leaves,), 1), ((worker(),), 0)):
        waiting = then(*pods, ready=ready)
        assert waiting.status is None or waiting.status["intent"]["awaitsWorkers"], pods
    going = wrote(then(worker(), ready=1)).intent
    assert going is not None
    assert (going.awaits_workers, going.attempt) == (False, 0)


@pytest.mark.parametrize(
    "facts",
    [
        {"head_pod": pod(uid="another")},
        {"head_pod": pod() | {"metadata": pod()["metadata"] | {"deletionTimestamp": times.to_text(at(30))}}},
        {"clusters": (cluster(deletionTimestamp=times.to_text(NOW)),)},
    ],
)
def test_without_its_head_a_cluster_is_not_kept(facts: Json) -> None:
    assert "in a new cluster" in str(wrote(ended(**facts)).message)


def test_a_node_that_is_lost_twice_takes_a_new_cluster_without_it() -> None:
    before = {"number": 1, "clusterName": "c", "submissionId": "c-1", "submittedTime": times.to_text(NOW)}
    blamed = before | {"endTime": times.to_text(NOW), "cause": "Infrastructure", "node": "node-7", "outcome": "Lost"}
    stopped = status_after(decide(world(held=(Held("node-7", works=True),))))
    told = answer({"phase": Phase.ENDED, "outcome": Outcome(66, "Stopped", "stopped at once", last_step=3)})
    status = merged(stopped, {"attempts": [blamed, *stopped["attempts"]]})
    found = wrote(decide(world(status=status, progress=told), seconds=2))
    assert [entry.name for entry in found.excluded_nodes] == ["node-7"]
    assert "in a new cluster" in str(found.message)


@pytest.mark.parametrize(
    ("pods", "kept"),
    [
        ((worker(WAITING),), True),
        # KubeRay was faster than the operator.
        ((worker(creationTimestamp=times.to_text(at(1))),), True),
        ((worker(),), False),
        (UNSEEN, False),
    ],
)
def test_ray_may_notice_first_and_a_node_that_is_silent_keeps_its_pod(pods: Any, kept: bool) -> None:  # noqa: ANN401 - pods or UNSEEN
    lost = Outcome(65, "NodeLost", "lost the worker at 10.0.0.7", last_step=3, suspect="node-7")
    told = answer({"phase": Phase.ENDED, "outcome": lost})
    status = wrote(decide(world(pods=pods, ready=1, progress=told)))
    assert ("in the same cluster, whose other pods stay" in str(status.message)) == kept
