"""Children that the cluster's rules reject for now."""

from __future__ import annotations

import pytest
from builders import (
    CLUSTER_NAME,
    Json,
    config,
    decide,
    job,
    reasons,
    seen,
    small_spec,
    snapshot,
    status_begun,
    status_initialized,
    wrote,
)

from rljob.api.status import State
from rljob.core.manifest_facts import identity
from rljob.core.observed import Observed, Refusal, RefusalCause
from rljob.core.plan import CreateObject, CreateToken, Plan
from rljob.core.reasons import Reason
from rljob.core.transitions.children import REFUSED
from rljob.render.names import code_name

QUOTA = "create /api/v1/namespaces/team/configmaps: 403 exceeded quota: few, used: count/configmaps=5"
PREPARED = small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]})
CODED = small_spec({"code": {"type": "ConfigMap", "configMap": {"name": "mine"}}})
CODE = {"metadata": {"name": "mine", "namespace": "team"}, "data": {"reward.py": "1"}}


def test_every_kind_of_child_has_its_reason() -> None:
    assert REFUSED == {
        "ConfigMap": Reason.CONFIG_MAP_REFUSED,
        "Secret": Reason.SECRET_REFUSED,
        "Job": Reason.JOB_REFUSED,
        "PodGroup": Reason.POD_GROUP_REFUSED,
        "NetworkPolicy": Reason.NETWORK_POLICY_REFUSED,
        "Service": Reason.SERVICE_REFUSED,
        "Deployment": Reason.DEPLOYMENT_REFUSED,
        "RayCluster": Reason.RAY_CLUSTER_REFUSED,
        "RLJob": Reason.RLJOB_REFUSED,
    }
    assert all(str(reason) == f"{kind}Refused" for kind, reason in REFUSED.items())


def denied(kind: str = "ConfigMap", name: str = CLUSTER_NAME, why: str = QUOTA) -> tuple[Refusal, ...]:
    return (Refusal(kind, name, why, RefusalCause.DENIED),)


def freezing(status: Json, seconds: float = 0, refusals: tuple[Refusal, ...] = ()) -> Plan:
    """Decide about a job whose snapshot is about to be created."""
    return decide(Observed(job(status=status), snapshot=None, config=None, refusals=refusals), seconds)


def kinds(plan: Plan) -> list[str]:
    return [effect.manifest["kind"] for effect in plan.effects if isinstance(effect, CreateObject | CreateToken)]


def refused_status(status: Json | None = None) -> Json:
    plan = freezing(status or status_begun(), 10, denied())
    assert plan.status is not None
    return dict(plan.status)


def test_a_refused_child_is_reported_with_the_message_of_the_server() -> None:
    plan = freezing(status_begun(), 10, denied())
    assert (wrote(plan).state, wrote(plan).reason) == (State.STARTING, "ConfigMapRefused")
    assert wrote(plan).message == f"ConfigMap {CLUSTER_NAME}: {QUOTA}"
    assert reasons(plan)["ClusterReady"] == ("False", "ConfigMapRefused")
    assert [(note.type, note.reason) for note in plan.events] == [("Warning", "ConfigMapRefused")]


@pytest.mark.parametrize("why", [QUOTA, QUOTA.replace("5", "6")])
def test_a_refusal_is_reported_once_and_creation_is_retried(why: str) -> None:
    # The Secret exists by then, and its own quota may be used up.
    assert kinds(freezing(refused_status(), 20, denied(why=why))) == ["ConfigMap"]
    assert kinds(freezing(refused_status(), 20)) == ["Secret", "ConfigMap"]


def test_an_operator_that_was_started_anew_just_tries() -> None:
    assert kinds(freezing(refused_status(), 7200)) == ["Secret", "ConfigMap"]


def test_another_child_that_is_refused_updates_the_message() -> None:
    plan = freezing(refused_status(), 20, denied("Secret", why="403 Forbidden"))
    assert wrote(plan).message == f"Secret {CLUSTER_NAME}: 403 Forbidden"


def test_the_start_deadline_ends_the_wait_with_the_servers_words() -> None:
    assert kinds(freezing(refused_status(), 1799, denied()))
    status = wrote(freezing(refused_status(), 1800, denied()))
    assert (status.state, status.reason) == (State.FAILED, "StartDeadlineExceeded")
    assert QUOTA in str(status.message)


def making_cluster(status: Json, seconds: float = 30, refusals: tuple[Refusal, ...] = ()) -> Plan:
    return decide(seen(job(status=status), config=config(), refusals=refusals), seconds)


def test_it_is_taken_back_when_the_child_is_made() -> None:
    plan = making_cluster(refused_status())
    assert (wrote(plan).state, wrote(plan).reason) == (State.STARTING, "ClusterStarting")
    assert reasons(plan)["ClusterReady"] == ("False", "ClusterStarting")
    assert kinds(making_cluster(dict(plan.status or {}))) == ["RayCluster"]


def test_a_refused_cluster_is_reported_and_ends_at_the_start_deadline() -> None:
    refused = denied("RayCluster", why="403 no")
    plan = making_cluster(status_initialized(), refusals=refused)
    assert wrote(plan).message == f"RayCluster {CLUSTER_NAME}: 403 no"
    assert kinds(making_cluster(dict(plan.status or {}), refusals=refused)) == ["RayCluster"]
    late = making_cluster(dict(plan.status or {}), 1800, refused)
    assert wrote(late).message == f"RayClusterRefused: RayCluster {CLUSTER_NAME}: 403 no"


def test_before_the_cluster_a_refusal_is_in_the_condition_initialized() -> None:
    world = Observed(
        job(CODED, status_begun(CODED)),
        snapshot=snapshot(CODED),
        code=CODE,
        code_copy=None,
        refusals=denied(name=code_name(identity(job()))),
    )
    plan = decide(world)
    assert (wrote(plan).state, wrote(plan).reason) == (State.PENDING, "ConfigMapRefused")
    assert reasons(plan)["Initialized"] == ("False", "ConfigMapRefused")


def test_an_initializer_that_is_refused_after_hours_has_its_time() -> None:
    refused = denied("Job", "sums-0a1b2-prepare")

    def preparing(status: Json, seconds: float) -> Plan:
        found = {"sums-0a1b2-prepare": None}
        subject = job(PREPARED, status)
        world = Observed(subject, snapshot=snapshot(PREPARED), initializers=found, refusals=refused)
        return decide(world, seconds)

    first = preparing(status_begun(PREPARED), 10_000)
    intent = wrote(first).intent
    assert wrote(first).reason == "JobRefused"
    assert intent is not None
    assert intent.start_deadline == "2026-01-01T15:16:40Z"
    assert isinstance(preparing(dict(first.status or {}), 11_799).effects[0], CreateObject)
    assert wrote(preparing(dict(first.status or {}), 11_800)).reason == "StartDeadlineExceeded"
