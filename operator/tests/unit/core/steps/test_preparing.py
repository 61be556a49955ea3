"""Before any NPU is held."""

import pytest
from builders import (
    CLUSTER_NAME,
    IDENTITY,
    Json,
    at,
    cluster,
    decide,
    group,
    job,
    reasons,
    seen,
    small_spec,
    snapshot,
    status_after,
    status_begun,
    typed,
    wrote,
)

from rljob.api.status import State
from rljob.api.v1alpha1 import RecipeKind
from rljob.core.observed import UNSEEN, Observed, PodGroupApi
from rljob.core.plan import CreateObject, CreateToken, Plan
from rljob.render import configmap

WRONG = small_spec({"trainer": {"globalBatchSize": 33, "samplesPerPrompt": 7}})
PREPARED = small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]})
JOB_NAME = "sums-0a1b2-prepare"


def ended(kind: str, **more: object) -> Json:
    return {"status": {"conditions": [{"type": kind, "status": "True"} | more]}}


def initializer_pod(name: str, **container: object) -> Json:
    return {
        "metadata": {"name": f"pod-{name}", "labels": {"rljob.dev/initializer": name}},
        "status": {"containerStatuses": [{"name": "initializer"} | container]},
    }


def preparing(found: Json | None, *pods: Json) -> Observed:
    return seen(
        job(PREPARED, status_begun(PREPARED)), snapshot=snapshot(PREPARED), initializers={JOB_NAME: found}, pods=pods
    )


def test_nothing_is_said_of_a_job_before_it_is_known_whether_it_began() -> None:
    assert decide(Observed(job(WRONG), snapshot=UNSEEN)) == Plan(requeue_after_seconds=5.0)


def test_a_wrong_spec_is_refused_with_every_violation_and_an_event() -> None:
    plan = decide(Observed(job(WRONG, None) | {"metadata": job()["metadata"] | {"name": "1"}}, snapshot=None))
    assert wrote(plan).state is State.INVALID
    assert [note.type for note in plan.events] == ["Warning"]
    assert "metadata.name: " in str(wrote(plan).message)
    assert "do not divide over 2 devices" in str(wrote(plan).message)


def test_fields_without_effect_are_told_in_the_condition_and_by_one_event() -> None:
    spec = small_spec({"optimizations": {"gcFreeze": "Enabled"}})
    plan = decide(Observed(job(spec), snapshot=None))
    assert reasons(plan)["Validated"] == ("True", "ValidWithWarnings")
    assert "spec.optimizations.gcFreeze: has no effect in this version" in str(wrote(plan).message)
    assert [(note.type, note.reason) for note in plan.events] == [("Warning", "ValidWithWarnings")]


def test_a_refusal_is_told_once() -> None:
    status = decide(Observed(job(WRONG), snapshot=None)).status
    assert decide(Observed(job(WRONG, status), snapshot=None), seconds=100) == Plan()


def test_a_job_that_began_goes_on_with_its_frozen_spec_when_status_is_lost_and_the_spec_broken() -> None:
    plan = decide(Observed(job(WRONG), snapshot=snapshot(PREPARED)))
    resolved = wrote(plan).resolved
    assert resolved is not None
    assert resolved.initializers == [JOB_NAME]


def test_the_intent_names_all_that_will_be_made() -> None:
    plan = decide(Observed(job(small_spec(group({"nodes": 2}))), snapshot=None))
    status = wrote(plan)
    assert status.intent is not None
    assert (status.intent.cluster_name, status.intent.attempt) == (CLUSTER_NAME, 0)
    assert status.intent.start_deadline == "2026-01-01T12:30:00Z"
    assert status.resolved is not None
    assert (status.resolved.nodes, status.resolved.devices, status.resolved.cards) == (2, 4, "4")
    assert plan.events == ()


@pytest.mark.parametrize(
    ("micro", "reason"), [(None, "a device's share of a mini batch"), (4, "set in the spec")], ids=["auto", "set"]
)
def test_a_decision_says_why(micro: int | None, reason: str) -> None:
    spec = small_spec({"trainer": {"microBatchSizePerDevice": micro}})
    resolved = wrote(decide(Observed(job(spec), snapshot=None))).resolved
    assert resolved is not None
    assert resolved.decisions[0].reason == reason


def test_a_lost_status_is_rebuilt_with_the_generation_of_the_living_cluster() -> None:
    living = cluster()
    living["metadata"]["labels"]["rljob.dev/cluster-generation"] = "3"
    intent = wrote(decide(Observed(job(), clusters=(living,), snapshot=snapshot()))).intent
    assert intent is not None
    assert intent.cluster_generation == 3


def test_the_spec_is_frozen_next_and_with_it_what_can_be() -> None:
    token, frozen = decide(Observed(job(status=status_begun()), snapshot=None)).effects
    assert isinstance(token, CreateToken)
    assert frozen == CreateObject(snapshot())


@pytest.mark.parametrize(
    "slow",
    [
        {"initializers": [{"name": "prepare", "command": ["true"]}]},
        {"code": {"type": "ConfigMap", "configMap": {"name": "mine"}, "mountPath": "/code"}},
        {"network": {"mode": "Host"}},
        {"scheduling": {"gang": "Volcano"}},
    ],
    ids=["initializers", "code", "ports", "Volcano"],
)
def test_what_takes_time_comes_between_spec_and_cluster(slow: Json) -> None:
    spec, served = small_spec(slow), PodGroupApi()
    begun = status_after(decide(Observed(job(spec), snapshot=None, pod_group_api=served)))
    assert begun["resolved"]["snapshotName"] == "sums-0a1b2-spec-1"
    (effect,) = decide(Observed(job(spec, begun), snapshot=None, pod_group_api=served)).effects
    assert effect == CreateObject(configmap.build_snapshot(IDENTITY, configmap.Snapshot(typed(spec)), 1))


def test_a_recipe_that_cannot_be_read_is_waited_for() -> None:
    on_recipe = job(small_spec({"recipeRef": {"name": "base"}}))
    why = {RecipeKind.CLUSTER_RL_RECIPE: "the operator may not list it"}
    plan = decide(Observed(on_recipe, snapshot=None, unreadable=why))
    assert reasons(plan)["Validated"] == ("False", "RecipeUnreadable")
    assert "ClusterRLRecipe base cannot be read: the operator may not list it" in str(wrote(plan).message)
    other = {RecipeKind.RL_RECIPE: "its CRD is not there"}
    assert wrote(decide(Observed(on_recipe, snapshot=None, unreadable=other))).reason == "InvalidSpec"
    began = seen(on_recipe, unreadable=why)
    assert wrote(decide(began)).intent is not None


def test_an_unseen_snapshot_is_not_a_missing_one() -> None:
    assert decide(Observed(job(status=status_begun()))) == Plan(requeue_after_seconds=5.0)


def test_a_spec_that_changed_before_it_was_frozen_begins_anew() -> None:
    edited = small_spec({"trainer": {"steps": 7}})
    told = decide(Observed(job(edited, status_begun()), snapshot=None))
    assert reasons(told)["PendingChanges"] == ("True", "SpecChanged")
    anew = decide(Observed(job(edited, told.status), snapshot=None))
    assert wrote(anew).intent is None
    assert wrote(decide(Observed(job(edited, anew.status), snapshot=None))).intent is not None


@pytest.mark.parametrize(
    "foreign",
    [
        {"metadata": {}, "data": snapshot()["data"]},
        snapshot() | {"data": {}},
        snapshot() | {"data": {"spec.json": "{}"}},
    ],
    ids=["of nobody", "empty", "of no spec"],
)
def test_a_snapshot_that_is_not_ours_ends_the_job(foreign: Json) -> None:
    plan = decide(Observed(job(status=status_begun()), snapshot=foreign))
    assert reasons(plan)["Finished"] == ("True", "Failed")
    assert f"NameTaken: ConfigMap {CLUSTER_NAME} was not created" in wrote(plan).conditions[-1].message


def test_a_job_with_nothing_to_prepare_is_initialized_as_soon_as_it_begins() -> None:
    prepared = small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]})
    copied = small_spec({"code": {"type": "ConfigMap", "configMap": {"name": "mine"}, "mountPath": "/code"}})
    told = [reasons(decide(Observed(job(spec), snapshot=None))) for spec in (small_spec(), prepared, copied)]
    assert ["Initialized" in conditions for conditions in told] == [True, False, False]


def test_an_initializer_is_made_when_it_is_not_there() -> None:
    plan = decide(preparing(None))
    effect = plan.effects[0]
    assert isinstance(effect, CreateObject)
    assert effect.manifest["metadata"]["name"] == JOB_NAME


def test_an_unseen_initializer_is_not_a_missing_one() -> None:
    world = Observed(job(PREPARED, status_begun(PREPARED)), snapshot=snapshot(PREPARED))
    assert decide(world) == Plan(requeue_after_seconds=5.0)


def test_a_running_initializer_is_named() -> None:
    plan = decide(preparing({}))
    assert (wrote(plan).state, wrote(plan).reason) == (State.INITIALIZING, "InitializerRunning")
    assert plan.requeue_after_seconds == 3.0
    assert decide(Observed(job(PREPARED, plan.status), snapshot=snapshot(PREPARED), initializers={JOB_NAME: {}})).empty


def test_an_initializer_that_cannot_start_says_why() -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    plan = decide(preparing({"status": {}}, initializer_pod("prepare", state=waiting)))
    assert wrote(plan).reason == "ImagePullFailed"
    assert [note.type for note in plan.events] == ["Warning"]


def test_a_failed_try_of_another_initializer_is_no_news_of_this_one() -> None:
    failed = initializer_pod("earlier", state={"terminated": {"exitCode": 1}})
    assert wrote(decide(preparing({}, failed))).reason == "InitializerRunning"


@pytest.mark.parametrize(
    ("pods", "message"),
    [
        ((), "InitializerFailed: initializer prepare: BackoffLimitExceeded: too often"),
        (
            (initializer_pod("prepare", state={"terminated": {"exitCode": 2, "message": "no disk"}}),),
            (
                "InitializerFailed: initializer prepare: BackoffLimitExceeded: too often; "
                "pod pod-prepare, container initializer: Error, exit code 2: no disk"
            ),
        ),
    ],
    ids=["pods are gone", "last words"],
)
def test_a_failed_initializer_ends_the_job_with_its_last_words(pods: tuple[Json, ...], message: str) -> None:
    plan = decide(preparing(ended("Failed", reason="BackoffLimitExceeded", message="too often"), *pods))
    assert wrote(plan).conditions[-1].message == message


def test_the_clock_of_the_start_begins_when_the_initializers_are_complete() -> None:
    plan = decide(preparing(ended("Complete")), seconds=1000)
    assert reasons(plan)["Initialized"] == ("True", "InitializersComplete")
    intent = wrote(plan).intent
    assert intent is not None
    assert intent.start_deadline == at(1000 + 1800).strftime("%Y-%m-%dT%H:%M:%SZ")
