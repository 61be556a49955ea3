"""Spec, code and cluster are frozen before anything starts."""

from __future__ import annotations

import pytest
from builders import (
    CLUSTER_NAME,
    IDENTITY,
    Json,
    decide,
    job,
    reasons,
    small_spec,
    snapshot,
    status_after,
    status_begun,
    typed,
    wrote,
)

from rljob.api.status import State
from rljob.core.observed import Observed, PodGroupApi
from rljob.core.plan import CreateObject, CreateToken, DeleteGenerations, Plan
from rljob.render import configmap
from rljob.render.code import build_code_copy
from rljob.render.labels import ISOLATED


def test_the_spec_is_frozen_next_and_with_it_what_can_be() -> None:
    token, frozen = decide(Observed(job(status=status_begun()), snapshot=None)).effects
    assert isinstance(token, CreateToken)
    assert frozen == CreateObject(snapshot())


@pytest.mark.parametrize("closed", [True, False])
def test_a_cluster_of_a_closed_namespace_is_marked_for_a_policy_of_its_own(*, closed: bool) -> None:
    seen = Observed(job(status=status_begun()), snapshot=None, namespace_is_closed=closed)
    _, frozen = decide(seen).effects
    assert isinstance(frozen, CreateObject)
    assert (f"{ISOLATED}" in str(frozen.manifest["data"])) is closed


def test_the_third_generation_deletes_what_the_first_one_left() -> None:
    status = status_begun()
    third = status | {"intent": status["intent"] | {"clusterGeneration": 3, "clusterName": "sums-0a1b2-3"}}
    third["resolved"] |= {"snapshotName": "sums-0a1b2-3", "baseSnapshot": "sums-0a1b2-2"}
    deleted, token, frozen = decide(Observed(job(status=third), snapshot=None, base_snapshot=snapshot())).effects
    assert isinstance(token, CreateToken)
    assert isinstance(frozen, CreateObject)
    assert deleted == DeleteGenerations(2, frozenset({"sums-0a1b2-3", "sums-0a1b2-2"}))


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


def test_a_spec_that_changed_before_it_was_frozen_begins_anew() -> None:
    edited = small_spec({"trainer": {"steps": 7}})
    told = decide(Observed(job(edited, status_begun()), snapshot=None))
    assert reasons(told)["PendingChanges"] == ("True", "SpecChanged")
    edited_again = decide(Observed(job(edited, told.status), snapshot=None))
    assert wrote(edited_again).intent is None
    assert wrote(decide(Observed(job(edited, edited_again.status), snapshot=None))).intent is not None


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


WITH_CODE = small_spec({"code": {"type": "ConfigMap", "configMap": {"name": "rewards"}}})
REWARDS: Json = {"metadata": {"name": "rewards"}, "data": {"reward.py": "1"}, "binaryData": {"x.bin": "AA=="}}
COPY = build_code_copy(IDENTITY, REWARDS)


def coding(**facts: object) -> Observed:
    return Observed(job(WITH_CODE, status_begun(WITH_CODE)), snapshot=snapshot(WITH_CODE), **facts)  # type: ignore[arg-type]


def test_the_users_code_is_copied_before_anything_starts() -> None:
    plan = decide(coding(code=REWARDS, code_copy=None))
    assert plan.effects == (CreateObject(COPY),)
    assert (COPY["data"], COPY["binaryData"]) == (REWARDS["data"], REWARDS["binaryData"])
    assert (COPY["metadata"]["name"], COPY["immutable"]) == ("sums-0a1b2-code", True)


def test_the_copys_digest_is_remembered_whatever_the_user_does_to_his_own() -> None:
    resolved = wrote(decide(coding(code=None, code_copy=COPY))).resolved
    assert resolved is not None
    assert resolved.code is not None
    assert resolved.code.digest == COPY["metadata"]["annotations"]["rljob.dev/code-digest"]
    assert (resolved.code.type, resolved.code.config_map) == ("ConfigMap", "rewards")


def test_missing_code_is_reported_and_waited_for_until_the_start_deadline() -> None:
    plan = decide(coding(code=None, code_copy=None), seconds=1799)
    assert reasons(plan)["Initialized"] == ("False", "CodeMissing")
    assert (wrote(plan).state, wrote(plan).message) == (
        State.PENDING,
        "spec.code.configMap: there is no ConfigMap rewards in namespace team; create it",
    )
    assert (len(plan.events), plan.requeue_after_seconds) == (1, 5.0)
    late = decide(coding(code=None, code_copy=None), seconds=1800)
    assert wrote(late).reason == "CodeMissing"
    assert reasons(late)["Finished"] == ("True", "Failed")


@pytest.mark.parametrize("facts", [{"code": REWARDS}, {"code_copy": None}, {}])
def test_unseen_code_is_not_missing_code(facts: Json) -> None:
    assert decide(coding(**facts)) == Plan(requeue_after_seconds=5.0)


def test_a_copy_that_is_not_ours_ends_the_job() -> None:
    plan = decide(coding(code=REWARDS, code_copy=REWARDS))
    assert "NameTaken: ConfigMap sums-0a1b2-code" in wrote(plan).conditions[-1].message


def test_a_job_of_an_operator_that_knew_nothing_of_code_is_completed() -> None:
    status = status_begun(WITH_CODE)
    del status["resolved"]["code"]
    plan = decide(Observed(job(WITH_CODE, status), snapshot=snapshot(WITH_CODE)))
    assert plan.status == status_begun(WITH_CODE)
