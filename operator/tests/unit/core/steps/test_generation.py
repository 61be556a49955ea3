"""The intent of a cluster generation."""

from __future__ import annotations

import pytest
from builders import (
    CLUSTER_NAME,
    cluster,
    decide,
    group,
    job,
    reasons,
    small_spec,
    snapshot,
    wrote,
)
from corpus.bad import saved

from rljob.core.observed import Observed

WRONG = small_spec({"trainer": {"globalBatchSize": 33, "samplesPerPrompt": 7}})
PREPARED = small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]})
JOB_NAME = "sums-0a1b2-prepare"


def test_warnings_are_written_to_the_condition_and_one_event() -> None:
    spec = small_spec(saved({"everySteps": 1_000}))
    plan = decide(Observed(job(spec), snapshot=None))
    assert reasons(plan)["Validated"] == ("True", "ValidWithWarnings")
    assert "spec.checkpoint.everySteps: " in str(wrote(plan).message)
    assert [(note.type, note.reason) for note in plan.events] == [("Warning", "ValidWithWarnings")]


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


def test_a_job_with_nothing_to_prepare_is_initialized_as_soon_as_it_begins() -> None:
    prepared = small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]})
    copied = small_spec({"code": {"type": "ConfigMap", "configMap": {"name": "mine"}, "mountPath": "/code"}})
    told = [reasons(decide(Observed(job(spec), snapshot=None))) for spec in (small_spec(), prepared, copied)]
    assert ["Initialized" in conditions for conditions in told] == [True, False, False]


def test_the_commit_of_git_is_its_digest_and_is_fetched_before_any_npu_is_held() -> None:
    git = {"url": "https://git.example/rewards", "revision": "a" * 40}
    spec = small_spec({"code": {"type": "Git", "git": git}})
    resolved = wrote(decide(Observed(job(spec), snapshot=None))).resolved
    assert resolved is not None
    assert resolved.code is not None
    assert resolved.code.digest == "a" * 40
    assert resolved.initializers == ["sums-0a1b2-fetch-code"]
