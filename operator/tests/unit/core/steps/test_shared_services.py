"""Services with placement Shared: available before the cluster exists, gone when the job has ended or is suspended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from builders import (
    CLUSTER_NAME,
    NOW,
    UID,
    Json,
    cluster,
    config,
    decide,
    job,
    merged,
    reasons,
    requests,
    small_spec,
    snapshot,
    status_after,
    wrote,
)

from rljob.api.status import State
from rljob.core import times
from rljob.core.context import Context
from rljob.core.observed import UNSEEN, Manifest, Observed, Refusal, RefusalCause, SharedServiceSeen
from rljob.core.plan import CreateObject, DeleteObject, Plan
from rljob.core.requirements import Pods
from rljob.launchers import LAUNCHER
from rljob.render import configmap, names
from rljob.render.accelerators import BUILT_IN

JUDGE = {"name": "judge", "image": "registry.example/judge:1", "port": 8000, "placement": "Shared"}
SPEC = small_spec({"services": [JUDGE]})
NAME = "sums-0a1b2-svc-1-judge"
START_SECONDS = 1800
KINDS = ("NetworkPolicy", "Service", "Deployment")
REFUSED = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate"}


def frozen(spec: Json = SPEC) -> Json:
    """Return what a generation is made from: with its snapshot, as of a job that starts at once."""
    return snapshot(spec)


def begun(spec: Json = SPEC) -> Json:
    return status_after(decide(Observed(job(spec), snapshot=None)))


def found(spec: Json = SPEC, available: int | None = None, **status: object) -> dict[str, SharedServiceSeen]:
    """Return the objects of every shared service as the API server has them."""
    made: dict[str, dict[str, Json]] = {}
    for manifest in configmap.read_services(config(spec)):
        stored = merged(manifest, {"metadata": {"uid": f"uid-of-{manifest['kind']}", "generation": 2}})
        if manifest["kind"] == "Deployment":
            counted = {} if available is None else {"observedGeneration": 2, "availableReplicas": available}
            stored["status"] = counted | status
        made.setdefault(manifest["metadata"]["name"], {})[manifest["kind"]] = stored
    return {
        name: SharedServiceSeen(parts["Deployment"], parts["Service"], parts["NetworkPolicy"])
        for name, parts in made.items()
    }


def part(seen: SharedServiceSeen, kind: str, change: Json) -> Json:
    """Return one of the objects of a service, changed."""
    return merged(next(each for each in seen.parts if isinstance(each, Mapping) and each["kind"] == kind), change)


def gone(*services: str) -> dict[str, SharedServiceSeen]:
    return {name: SharedServiceSeen(None, None, None) for name in services or (NAME,)}


def before_cluster(
    services: dict[str, SharedServiceSeen], seconds: float = 0, status: Json | None = None, **facts: object
) -> Plan:
    world: Json = {"snapshot": frozen(), "config": frozen(), "services": services} | facts
    return decide(Observed(job(SPEC, status or begun()), **world), seconds)


def waiting(**facts: Any) -> Json:  # noqa: ANN401 - fields of Observed
    """Return the status of a job that reports the wait."""
    return status_after(before_cluster(found(), **facts))


def pod(**status: object) -> Json:
    return {
        "metadata": {"name": "judge-x", "namespace": "team", "labels": {"rljob.dev/service": NAME}},
        "status": status,
    }


def places(plan: Plan) -> list[tuple[str, str]]:
    return [
        (effect.manifest["kind"], effect.manifest["metadata"]["name"])
        for effect in plan.effects
        if isinstance(effect, CreateObject)
    ]


def deletions(plan: Plan) -> set[str]:
    return {effect.kind for effect in plan.effects if isinstance(effect, DeleteObject)}


def message(plan: Plan) -> str:
    return next(entry.message for entry in wrote(plan).conditions if entry.type == "ClusterReady")


def named(plan: Plan) -> list[str]:
    return wrote(plan).services


def test_the_names_are_recorded_before_anything_exists() -> None:
    told = decide(Observed(job(SPEC), snapshot=None))
    assert named(told) == [NAME]
    assert named(decide(Observed(job(), snapshot=None))) == []


def test_the_services_are_created_before_the_cluster_and_the_policy_before_the_pods() -> None:
    told = before_cluster(gone())
    assert places(told) == [(kind, NAME) for kind in KINDS]
    half = found()[NAME]
    assert places(before_cluster({NAME: SharedServiceSeen(None, half.service, half.policy)})) == [("Deployment", NAME)]


def test_a_service_of_somebody_else_is_not_taken_for_the_jobs_own() -> None:
    foreign = part(found()[NAME], "Service", {"metadata": {"ownerReferences": []}})
    mine = found()[NAME]
    assert places(before_cluster({NAME: SharedServiceSeen(mine.deployment, foreign, mine.policy)})) == [
        ("Service", NAME)
    ]


def test_the_job_says_which_service_it_waits_for() -> None:
    told = before_cluster(found())
    assert told.effects == ()
    assert reasons(told)["ClusterReady"] == ("False", "WaitingForServices")
    assert message(told) == "service judge: 0 of 1 pod is available"
    assert wrote(told).state is State.STARTING
    assert wrote(told).reason == "WaitingForServices"
    assert told.events == ()


def test_what_is_not_counted_yet_is_not_available() -> None:
    before = part(found(available=1)[NAME], "Deployment", {"status": {"observedGeneration": 1}})
    seen = found()[NAME]
    told = before_cluster({NAME: SharedServiceSeen(before, seen.service, seen.policy)})
    assert reasons(told)["ClusterReady"] == ("False", "WaitingForServices")


def test_every_replica_is_waited_for() -> None:
    spec = small_spec({"services": [JUDGE | {"replicas": 2}]})
    world: Json = {"snapshot": frozen(spec), "config": frozen(spec)}
    told = decide(Observed(job(spec, begun(spec)), services=found(spec, 1), **world))
    assert message(told) == "service judge: 1 of 2 pods are available"
    made = decide(Observed(job(spec, begun(spec)), services=found(spec, 2), **world))
    assert places(made) == [("RayCluster", CLUSTER_NAME)]


def test_a_service_that_was_scaled_to_none_is_waited_for() -> None:
    seen = found(available=0)[NAME]
    idle = part(seen, "Deployment", {"spec": {"replicas": 0}})
    told = before_cluster({NAME: SharedServiceSeen(idle, seen.service, seen.policy)})
    assert message(told) == "service judge: 0 of 1 pod is available"


def test_the_cluster_begins_when_the_services_are_available() -> None:
    ready = found(available=1)
    told = before_cluster(ready, status=waiting())
    assert reasons(told)["ClusterReady"] == ("False", "ClusterStarting")
    assert places(before_cluster(ready, status=status_after(told))) == [("RayCluster", CLUSTER_NAME)]
    assert places(before_cluster(ready)) == [("RayCluster", CLUSTER_NAME)]


PROBLEMS = {
    "no room": (
        [pod(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3"}])],
        "PodUnschedulable: pod judge-x: the scheduler reports: 0/3",
        True,
    ),
    "no image": (
        [pod(containerStatuses=[{"name": "judge", "state": {"waiting": {"reason": "ErrImagePull", "message": "no"}}}])],
        "ImagePullFailed: pod judge-x, container judge: ErrImagePull: no",
        True,
    ),
    "it loads": (
        [pod(containerStatuses=[{"name": "judge", "ready": False, "state": {"running": {}}}])],
        "PodStarting: pod judge-x waits for judge",
        False,
    ),
    "no pod": ([], "NoPods: no pod exists yet", False),
}


@pytest.mark.parametrize(("pods", "words", "problem"), PROBLEMS.values(), ids=PROBLEMS)
def test_what_its_pods_say_is_part_of_the_message(pods: list[Manifest], words: str, problem: bool) -> None:
    other = merged(pod(), {"metadata": {"name": "a", "labels": {"rljob.dev/service": "other"}}})
    told = before_cluster(found(), status=waiting(), pods=(other, *pods))
    assert message(told) == f"service judge: 0 of 1 pod is available; {words}"
    assert bool(told.events) == problem


def test_what_is_not_read_again_stays_in_the_message() -> None:
    before = waiting(pods=tuple(PROBLEMS["no room"][0]))
    assert before_cluster(found(), status=before, pods=UNSEEN) == Plan(requeue_after_seconds=5.0)


def test_pods_that_are_refused_are_reported_once() -> None:
    def refused(name: str) -> dict[str, SharedServiceSeen]:
        return found(conditions=[REFUSED | {"message": f'pods "{name}" is forbidden: exceeded quota'}])

    first = before_cluster(refused("a"), status=waiting())
    said = "service judge: 0 of 1 pod is available; PodsRefused: the controller of Deployments: FailedCreate: pods"
    assert message(first).startswith(f'{said} "a" is forbidden')
    (event,) = first.events
    assert event.type == "Warning"
    assert before_cluster(refused("b"), status=status_after(first)) == Plan(requeue_after_seconds=5.0)


def test_the_start_deadline_ends_the_wait() -> None:
    before = waiting(pods=tuple(PROBLEMS["no room"][0]))
    told = before_cluster(found(), START_SECONDS, status=before)
    assert "WaitingForServices: service judge: 0 of 1 pod is available; PodUnschedulable" in str(wrote(told).message)
    assert wrote(told).reason == "StartDeadlineExceeded"
    assert wrote(told).services != []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("NetworkPolicy", "NetworkPolicyRefused"),
        ("Service", "ServiceRefused"),
        ("Deployment", "DeploymentRefused"),
    ],
)
def test_a_refusal_is_reported_by_its_kind(kind: str, reason: str) -> None:
    denied = Refusal(kind, NAME, "exceeded quota", RefusalCause.DENIED)
    told = before_cluster(gone(), refusals=(denied,))
    assert reasons(told)["ClusterReady"] == ("False", reason)
    again = before_cluster(gone(), status=status_after(told), refusals=(denied,))
    assert places(again)[0] == (kind, NAME)


@pytest.mark.parametrize("which", range(3))
def test_what_was_not_read_decides_nothing(which: int) -> None:
    parts: list[Any] = list(found(available=1)[NAME].parts)
    parts[which] = UNSEEN
    assert before_cluster({NAME: SharedServiceSeen(*parts)}) == Plan(requeue_after_seconds=5.0)
    assert before_cluster({}) == Plan(requeue_after_seconds=5.0)


def test_a_name_that_is_still_in_use_is_waited_for() -> None:
    seen = found()[NAME]
    going = part(seen, "Deployment", {"metadata": {"deletionTimestamp": times.to_text(NOW)}})
    assert before_cluster({NAME: SharedServiceSeen(going, None, None)}) == Plan(requeue_after_seconds=5.0)


def test_only_what_the_decision_depends_on_is_read() -> None:
    wanted = requests(job(SPEC, begun()), (), None, NOW)
    assert wanted.service_names == (NAME,)
    assert wanted.pods is None
    listed = requests(job(SPEC, waiting()), (), None, NOW).pods
    assert listed == Pods(f"rljob.dev/job-uid={UID},rljob.dev/service", 5.0)
    assert requests(job(SPEC, begun()), (cluster(),), None, NOW).service_names == ()
    assert requests(job(status=status_after(decide(Observed(job(), snapshot=None)))), (), None, NOW).service_names == ()


def ended(**change: object) -> Json:
    return begun() | {"intent": begun()["intent"] | {"ended": True}} | change


FINISHED = {"type": "Finished", "status": "True", "reason": "Succeeded", "lastTransitionTime": times.to_text(NOW)}


def rests(status: Json, services: dict[str, SharedServiceSeen], seconds: float = 0, **facts: object) -> Plan:
    suspended = merged(SPEC, {"suspend": True})
    world: Json = {"snapshot": frozen(), "services": services} | facts
    return decide(Observed(job(suspended, status), **world), seconds)


SUSPENDED = FINISHED | {"type": "Suspended", "reason": "Suspended"}
REST = {
    "suspended": ended(conditions=[SUSPENDED], state="Suspended"),
    "finished": ended(conditions=[FINISHED], state="Succeeded", finishedTime=times.to_text(NOW)),
}


@pytest.mark.parametrize("status", REST.values(), ids=REST)
def test_the_services_of_a_job_at_rest_are_deleted_and_then_forgotten(status: Json) -> None:
    told = rests(status, found(available=1))
    assert deletions(told) == set(KINDS)
    assert rests(status, {NAME: SharedServiceSeen(UNSEEN, None, None)}) == Plan(requeue_after_seconds=5.0)
    early = rests(status, gone(), 599)
    assert early.effects == ()
    assert early.status is None or named(early) == [NAME]
    assert named(rests(status, gone(), 600)) == []
    assert requests(job(merged(SPEC, {"suspend": True}), status), (), None, NOW).service_names == (NAME,)


def test_what_is_being_deleted_is_waited_for_and_what_is_not_the_jobs_is_left() -> None:
    seen = found()[NAME]
    going = part(seen, "Deployment", {"metadata": {"deletionTimestamp": times.to_text(NOW)}})
    assert rests(ended(), {NAME: SharedServiceSeen(going, None, None)}) == Plan(requeue_after_seconds=5.0)
    foreign = part(seen, "Service", {"metadata": {"ownerReferences": []}})
    assert named(rests(REST["finished"], {NAME: SharedServiceSeen(None, foreign, None)}, 600)) == []


def test_a_stray_of_a_former_leader_is_deleted_after_the_services_were() -> None:
    seen = found()[NAME]
    told = rests(REST["finished"], {NAME: SharedServiceSeen(seen.deployment, None, None)}, 300)
    assert deletions(told) == {"Deployment"}


def test_a_cluster_that_is_kept_after_the_end_keeps_the_services() -> None:
    kept = merged(frozen(), {})
    told = rests(REST["finished"], found(available=1), clusters=(cluster(),), snapshot=kept)
    assert deletions(told) == {"RayCluster"}


def test_a_run_that_saves_keeps_its_services() -> None:
    asked = job(merged(SPEC, {"suspend": True}), begun())
    assert requests(asked, (), None, NOW).service_names == ()


def test_a_restart_keeps_the_services_and_an_edit_replaces_them() -> None:
    again = decide(Observed(job(SPEC, ended(nextAttemptTime=times.to_text(NOW))), snapshot=frozen()))
    assert wrote(again).intent is not None
    assert named(again) == [NAME]

    edited = merged(SPEC, {"trainer": {"steps": 50}})
    drifted = status_after(decide(Observed(job(edited, ended()), snapshot=frozen())))
    told = decide(Observed(job(edited, drifted), snapshot=frozen()))
    after = names.shared_service_name(names.JobIdentity("team", "sums", UID), 2, "judge")
    assert named(told) == [NAME, after]


def test_services_of_an_earlier_spec_are_gone_before_others_come() -> None:
    status = begun()
    old = "sums-0a1b2-svc-0-judge"
    status["services"].insert(0, old)
    here = {old: found()[NAME]} | gone(NAME)
    told = before_cluster(here, status=status)
    assert deletions(told) == set(KINDS)
    assert places(told) == []
    assert named(before_cluster(gone(old, NAME), status=status)) == [NAME]


def test_the_status_keeps_no_more_services_than_can_exist() -> None:
    many = [f"sums-0a1b2-svc-0-{number}" for number in range(9)]
    told = decide(Observed(job(SPEC, ended(services=many, nextAttemptTime=times.to_text(NOW))), snapshot=frozen()))
    assert named(told) == [*(f"sums-0a1b2-svc-0-{number}" for number in range(8)), NAME]


@pytest.mark.parametrize(
    "text",
    ["[", '[{"kind": "Deployment"}]', '[{"kind": "Secret", "metadata": {"namespace": "team", "name": "x"}}]'],
    ids=["no JSON", "no object", "another kind"],
)
def test_nothing_is_created_that_the_status_does_not_name(text: str) -> None:
    other = merged(frozen(), {"data": {configmap.SERVICES_KEY: text}})
    told = before_cluster(gone(), config=other)
    assert told.effects == ()


def test_before_a_generation_is_frozen_there_is_nothing_to_create() -> None:
    assert Context.of(Observed(job(SPEC, begun())), NOW, LAUNCHER, BUILT_IN).frozen_services == ()
