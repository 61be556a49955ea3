"""When the record of an attempt is written."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from builders import (
    CLUSTER_NAME,
    Json,
    at,
    cluster,
    decide,
    job,
    pod,
    requests,
    running,
    status_finished,
    status_training,
)

from rljob.core.manifest_facts import identity
from rljob.core.observed import UNSEEN, Observed
from rljob.core.plan import DeleteObject, KeepEvidence
from rljob.core.requirements import Evidence
from rljob.render.names import evidence_name


def ended(**facts: Any) -> Observed:  # noqa: ANN401 - fields of Observed
    return running(**{"job": job(status=status_finished()), "evidence": None, "pods": (pod(),)} | facts)


def written(world: Observed) -> Json:
    (effect,) = decide(world).effects
    assert isinstance(effect, KeepEvidence)
    return dict(effect.manifest)


def test_it_is_written_before_the_cluster_goes() -> None:
    made = written(ended(warnings=()))
    entry = json.loads(made["data"]["attempt-1.json"])
    assert (entry["attempt"]["number"], entry["rayCluster"]["name"]) == (1, CLUSTER_NAME)
    assert [found["name"] for found in entry["pods"]] == ["head"]
    (effect,) = decide(ended(evidence=made)).effects
    assert isinstance(effect, DeleteObject)


def test_a_cluster_that_is_gone_leaves_the_rest() -> None:
    assert "rayCluster" not in json.loads(written(ended(clusters=()))["data"]["attempt-1.json"])


@pytest.mark.parametrize(
    "evidence",
    [UNSEEN, {"metadata": {"name": "x", "ownerReferences": []}, "data": {}}],
    ids=["not to be read", "of somebody else"],
)
def test_what_cannot_be_written_holds_nothing_up(evidence: Any) -> None:  # noqa: ANN401 - a manifest
    (effect,) = decide(ended(evidence=evidence)).effects
    assert isinstance(effect, DeleteObject)


def test_after_a_minute_it_is_given_up() -> None:
    assert written(ended())
    (effect,) = decide(ended(), seconds=60).effects
    assert isinstance(effect, DeleteObject)


def test_an_attempt_that_runs_leaves_nothing_yet() -> None:
    assert decide(running(job=job(status=status_training()), evidence=None)).effects == ()


def asked(seconds: float = 0, rljob: Json | None = None) -> Evidence | None:
    return requests(rljob or job(status=status_finished()), (cluster(),), None, at(seconds)).evidence


def test_it_is_asked_for_within_a_minute_of_the_end() -> None:
    name = evidence_name(identity(job()))
    assert asked(59) == Evidence(name, "attempt-1.json", CLUSTER_NAME)
    assert asked(60) is None
    assert requests(job(status=status_training()), (cluster(),), pod(), at(0)).evidence is None


def test_nothing_is_kept_of_a_job_that_is_being_deleted() -> None:
    leaving = job(status=status_finished(), deletionTimestamp="2026-01-01T12:00:00Z", finalizers=["rljob.dev/stop"])
    assert asked(rljob=leaving) is None


def test_what_others_added_to_it_does_not_go_by_our_hand() -> None:
    made = written(ended())
    later = status_finished()
    later["attempts"].append(later["attempts"][0] | {"number": 2})
    again = written(replace(ended(evidence=made), job=job(status=later)))
    assert list(again["data"]) == ["attempt-1.json", "attempt-2.json"]
