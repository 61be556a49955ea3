"""Gang scheduling by Volcano: a PodGroup before the cluster, a wait without a deadline, and complete cleanup."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from builders import (
    CLUSTER_NAME,
    IDLE,
    NOW,
    Json,
    at,
    cluster,
    config,
    decide,
    job,
    merged,
    pod,
    reasons,
    requests,
    seen,
    small_spec,
    snapshot,
    status_after,
    status_finished,
    status_recorded,
    status_submitted,
    wrote,
)

from rljob.api.status import State
from rljob.core import times
from rljob.core.attempts.job_summary import standing
from rljob.core.context import Context
from rljob.core.observed import Observed, PodGroupApi
from rljob.core.plan import CreateObject, DeleteObject, Plan
from rljob.core.transitions.queue_admission import admission_of
from rljob.launchers import LAUNCHER
from rljob.render import configmap
from rljob.render.accelerators import BUILT_IN
from rljob.render.podgroup import GROUP_NAME, Gang

SPEC = small_spec({"scheduling": {"gang": "Volcano"}})
THERE = PodGroupApi(frozenset({"minMember"}))
ABSENT = PodGroupApi(problem="the API server does not serve podgroups.scheduling.volcano.sh")
ALL_WAIT = {"type": "Unschedulable", "status": "True", "reason": "NotEnoughResources", "message": "2/2 tasks"}
START_SECONDS = 1800


def begun() -> Json:
    return status_after(decide(Observed(job(SPEC), snapshot=None, pod_group_api=THERE)))


def before_cluster(seconds: float = 0, **facts: object) -> Plan:
    world: Json = {"snapshot": snapshot(SPEC), "config": None, "pod_group_api": THERE}
    return decide(Observed(job(SPEC, begun()), **(world | facts)), seconds)


def group(phase: str | None = "Inqueue", name: str = CLUSTER_NAME, **change: object) -> Json:
    metadata = {"namespace": "team", "name": name, "uid": f"uid-of-{name}", **change}
    status = {"phase": phase, "conditions": [ALL_WAIT]}
    return {"kind": "PodGroup", "metadata": metadata, "spec": {}, "status": status}


def head(of: str = CLUSTER_NAME) -> Json:
    return merged(pod(ready=False), {"metadata": {"annotations": {GROUP_NAME: of}}})


def waiting(
    found: Json | None, seconds: float = 0, status: Json | None = None, *, age: float = 30, **facts: object
) -> Plan:
    made = cluster(creationTimestamp=times.to_text(at(seconds) - timedelta(seconds=age)))
    world: Json = {"clusters": (made,), "pods": (), "pod_groups": (found,) if found else (), "head_pod": head()}
    return decide(seen(job(status=status or status_recorded()), **(world | facts)), seconds)


def test_nothing_begins_before_it_is_known_what_the_cluster_serves() -> None:
    assert decide(Observed(job(SPEC), snapshot=None)) == Plan(requeue_after_seconds=5.0)
    resolved = wrote(decide(Observed(job(SPEC), snapshot=None, pod_group_api=ABSENT))).resolved
    assert resolved is not None
    (decision,) = (found for found in resolved.decisions if found.name == "scheduling.gang")
    assert (decision.value, decision.reason) == ("Volcano", "set in the spec")


@pytest.mark.parametrize(("api", "advised"), [(THERE, False), (ABSENT, True)])
def test_volcano_is_not_advised_to_a_job_that_gets_it(api: PodGroupApi, advised: bool) -> None:
    spec = small_spec({"accelerator": {"class": "atlas-a2"}})
    (validated,) = (
        condition
        for condition in wrote(decide(Observed(job(spec), snapshot=None, pod_group_api=api))).conditions
        if condition.type == "Validated"
    )
    assert "2 of 8 devices of a node" in validated.message
    assert ("set scheduling.gang to Volcano" in validated.message) == advised


def test_a_restart_goes_by_what_was_decided_and_asks_nobody() -> None:
    status = begun()
    status["intent"]["ended"] = True
    again = decide(Observed(job(SPEC, status | {"nextAttemptTime": times.to_text(NOW)}), snapshot=snapshot(SPEC)))
    assert wrote(again).intent is not None
    assert wrote(again).resolved == decide_resolved(status)


def decide_resolved(status: Json) -> object:
    return wrote(Plan(status=status)).resolved


def test_the_group_is_made_right_before_the_cluster() -> None:
    frozen = config(SPEC)
    made = before_cluster(config=frozen).effects
    assert made == (
        CreateObject(json.loads(frozen["data"][configmap.POD_GROUP_KEY])),
        CreateObject(json.loads(frozen["data"][configmap.RAYCLUSTER_KEY])),
    )


def test_a_group_that_nobody_rendered_is_not_made() -> None:
    for wrong in ("no json", '{"kind": "Pod"}', '{"kind": "PodGroup", "metadata": {"namespace": "x", "name": "y"}}'):
        frozen = config(SPEC)
        frozen["data"][configmap.POD_GROUP_KEY] = wrong
        (only,) = before_cluster(config=frozen).effects
        assert isinstance(only, CreateObject)
        assert only.manifest["kind"] == "RayCluster"
    no_config = Context.of(Observed(job(SPEC, begun()), snapshot=snapshot(SPEC)), NOW, LAUNCHER, BUILT_IN)
    assert no_config.frozen_pod_group is None


def test_what_is_frozen_asks_for_what_this_volcano_knows() -> None:
    spec = merged(SPEC, {"scheduling": {"topology": {"level": "2"}}})
    for fields, asked in ((frozenset({"networkTopology"}), True), (frozenset({"minMember"}), False)):
        api = PodGroupApi(fields)
        status = status_after(decide(Observed(job(spec), snapshot=None, pod_group_api=api)))
        world = Observed(job(spec, status), snapshot=snapshot(spec), config=None, pod_group_api=api)
        _, frozen = decide(world).effects
        assert isinstance(frozen, CreateObject)
        found = configmap.read_pod_group(frozen.manifest)
        assert found is not None
        assert ("networkTopology" in found["spec"]) is asked


def test_without_volcano_the_job_says_so_and_waits_as_long_as_for_a_start() -> None:
    plan = before_cluster(pod_group_api=ABSENT)
    assert wrote(plan).state is State.PENDING
    assert reasons(plan)["ClusterReady"] == ("False", "GangUnavailable")
    assert "spec.scheduling.gang is Volcano, but the API server does not serve" in (wrote(plan).message or "")
    assert [event.reason for event in plan.events] == ["GangUnavailable"]
    late = wrote(before_cluster(START_SECONDS, pod_group_api=ABSENT))
    assert late.reason == "StartDeadlineExceeded"
    assert "install Volcano" in (late.message or "")


def test_what_volcano_serves_is_waited_for_and_of_no_interest_once_all_is_frozen() -> None:
    world: Json = {"snapshot": snapshot(SPEC), "config": None}
    assert decide(Observed(job(SPEC, begun()), **world)) == Plan(requeue_after_seconds=5.0)
    world["config"] = config(SPEC)
    assert len(decide(Observed(job(SPEC, begun()), **world)).effects) == 2


def test_a_cluster_that_cannot_be_made_names_both_who_may_be_missing() -> None:
    late = wrote(before_cluster(START_SECONDS, config=config(SPEC)))
    assert "are KubeRay and Volcano installed" in (late.message or "")


def test_a_job_that_began_before_there_were_gangs_goes_by_its_spec() -> None:
    status = begun()
    status["resolved"]["decisions"] = []
    assert (
        Context.of(Observed(job(SPEC, status), snapshot=snapshot(SPEC)), NOW, LAUNCHER, BUILT_IN).gang is Gang.VOLCANO
    )
    assert Context.of(Observed(job(SPEC, status)), NOW, LAUNCHER, BUILT_IN).gang is Gang.NONE


def test_a_job_that_waits_says_why_and_loses_no_time_to_start() -> None:
    plan = waiting(group())
    assert wrote(plan).state is State.QUEUED
    assert reasons(plan)["Admitted"] == ("False", "NotEnoughResources")
    assert reasons(plan)["ClusterReady"] == ("False", "WaitingForQueue")
    assert wrote(plan).message == "queue default of Volcano: 2/2 tasks"
    assert standing(wrote(plan)).queued_since == NOW
    queued, days = status_after(plan), 3 * 24 * 3600
    assert waiting(group(), days, queued).status is None
    goes = wrote(waiting(group("Running"), days, queued))
    assert goes.state is State.STARTING
    assert goes.intent is not None
    assert goes.intent.start_deadline == times.to_text(at(days + START_SECONDS))
    assert {c.type: (c.status.value, c.reason) for c in goes.conditions}["Admitted"] == ("True", "Admitted")


def test_pods_that_are_ready_before_anybody_looked_have_their_time_to_start_too() -> None:
    days = 3 * 24 * 3600
    queued = status_after(waiting(group()))
    world = seen(
        job(status=queued), clusters=(cluster(ready=1),), head_pod=pod(), progress=IDLE, pod_groups=(group("Running"),)
    )
    intent = wrote(decide(world, days)).intent
    assert intent is not None
    assert (intent.attempt, intent.start_deadline) == (1, times.to_text(at(days + START_SECONDS)))


def test_volcano_may_write_down_later_than_the_pods_are_ready_that_they_go() -> None:
    world = seen(
        job(status=status_recorded()),
        clusters=(cluster(ready=1),),
        head_pod=merged(pod(), {"metadata": {"annotations": {GROUP_NAME: CLUSTER_NAME}}}),
        progress=IDLE,
        pod_groups=(group("Inqueue"),),
    )
    assert reasons(decide(world))["Admitted"] == ("True", "Admitted")


def test_a_young_cluster_may_be_scheduled_before_anything_is_reported() -> None:
    assert waiting(group(), age=4) == Plan(requeue_after_seconds=6.0)
    queued = status_after(waiting(group()))
    assert waiting(group(), status=queued, age=4).status is None


def test_pods_of_a_waiting_job_are_not_looked_at() -> None:
    queued = job(status=status_after(waiting(group())))
    assert requests(queued, (cluster(),), head(), NOW).pods is None


@pytest.mark.parametrize(
    ("found", "of", "reason", "word"),
    [
        (group(None), CLUSTER_NAME, "GangUnavailable", "is its scheduler running?"),
        (group(), f"ray-{CLUSTER_NAME}-pg", "OtherPodGroup", "turn KubeRay's --batch-scheduler off"),
    ],
)
def test_a_wait_that_nothing_ends_is_bounded(found: Json, of: str, reason: str, word: str) -> None:
    plan = waiting(found, head_pod=head(of))
    assert wrote(plan).state is State.STARTING
    assert reasons(plan)["ClusterReady"] == ("False", reason)
    assert [event.reason for event in plan.events] == [reason]
    late = wrote(waiting(found, START_SECONDS, head_pod=head(of)))
    assert late.reason == "StartDeadlineExceeded"
    assert word in (late.message or "")


def test_a_group_that_is_gone_leaves_the_pods_to_their_own_words() -> None:
    assert reasons(waiting(None, 60, age=120))["ClusterReady"][1] == "NoPods"
    assert "Admitted" not in reasons(waiting(None, 60, age=120))


def test_nobody_says_anything_of_a_cluster_that_is_not_there() -> None:
    assert admission_of(Context.of(seen(job(status=status_recorded())), NOW, LAUNCHER, BUILT_IN)) is None


def deletions(world: Observed) -> list[str]:
    return [f"{effect.kind} {effect.name}" for effect in decide(world).effects if isinstance(effect, DeleteObject)]


def ended(**changes: object) -> Json:
    status = status_submitted()
    status["intent"] |= {"ended": True, **changes}
    return status


OLD = group("Running", "sums-0a1b2-0")


@pytest.mark.parametrize(
    ("status", "clusters", "groups", "deleted"),
    [
        ("running", 1, (OLD, group()), [f"PodGroup {OLD['metadata']['name']}"]),
        ("running", 0, (group(),), []),
        ("ended", 0, (group(),), [f"PodGroup {CLUSTER_NAME}"]),
        ("ended", 0, (group(deletionTimestamp="2026-01-01T00:00:00Z"),), []),
        # The cluster is deleted first, because its pods may be members while it exists.
        ("ended", 1, (group(),), [f"RayCluster {CLUSTER_NAME}"]),
        ("finished", 1, (group(),), [f"RayCluster {CLUSTER_NAME}"]),
        ("finished", 0, (group(),), [f"PodGroup {CLUSTER_NAME}"]),
        ("lost", 0, (group(),), []),
    ],
)
def test_a_group_ends_with_its_generation(
    status: str, clusters: int, groups: tuple[Json, ...], deleted: list[str]
) -> None:
    told = {"running": status_submitted(), "ended": ended(), "finished": status_finished(), "lost": {}}[status]
    living = tuple(cluster(ready=1) for _ in range(clusters))
    world = seen(job(status=told), clusters=living, pod_groups=groups)
    assert deletions(world) == deleted
