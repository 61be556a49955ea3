"""checkpoint.from.job: waited for, resolved once, pinned, and passed to the launcher."""

from __future__ import annotations

import pytest
from builders import (
    Json,
    cluster,
    config,
    decide,
    job,
    merged,
    reasons,
    saving,
    small_spec,
    snapshot,
    status_after,
    wrote,
)

from rljob.api.status import Resolved
from rljob.core.observed import Observed
from rljob.core.plan import CreateObject
from rljob.core.spec.checkpoint_source import pinned_path
from rljob_runtime.contract import JobConfig, ResumeSource

FROM = small_spec(
    saving({"checkpoint": {"path": "/data/mine", "everySteps": 5, "from": {"job": "earlier", "step": 20}}})
)
NAMED = {"spec": {"checkpoint": {"path": "/data/theirs"}}}
SAVED = {"spec": {"recipeRef": {"name": "base"}}, "status": {"checkpoint": {"path": "/data/saved", "step": 7}}}


@pytest.mark.parametrize(
    ("siblings", "words"),
    [({}, "RLJob earlier does not exist"), ({"earlier": {"spec": {}}}, "RLJob earlier has saved no checkpoint")],
)
def test_a_source_that_is_not_there_is_waited_for(siblings: dict[str, Json], words: str) -> None:
    plan = decide(Observed(job(FROM), snapshot=None, siblings=siblings))
    assert reasons(plan)["Validated"] == ("False", "CheckpointSourceMissing")
    assert f"spec.checkpoint.from.job: {words}" in str(wrote(plan).message)
    assert plan.requeue_after_seconds == 30.0
    again = decide(Observed(job(FROM, plan.status), snapshot=None, siblings=siblings))
    assert (again.empty, again.requeue_after_seconds) == (True, 30.0)
    found = decide(Observed(job(FROM, plan.status), snapshot=None, siblings={"earlier": NAMED}))
    assert reasons(found)["Validated"] == ("True", "Valid")


@pytest.mark.parametrize(("sibling", "path"), [(NAMED, "/data/theirs"), (SAVED, "/data/saved")])
def test_what_was_found_is_pinned_and_handed_to_the_launcher(sibling: Json, path: str) -> None:
    begun = status_after(decide(Observed(job(FROM), snapshot=None, siblings={"earlier": sibling})))
    assert {"name": "checkpoint.from.job", "value": path, "reason": "checkpoint.path of RLJob earlier"} in (
        begun["resolved"]["decisions"]
    )
    _, frozen = decide(Observed(job(FROM, begun), snapshot=snapshot(FROM), config=None)).effects
    assert isinstance(frozen, CreateObject)
    assert JobConfig.from_json(frozen.manifest["data"]["job.json"]).resume_from == ResumeSource(path, 20)


def test_a_lost_status_of_a_running_job_waits_for_no_source() -> None:
    plan = decide(Observed(job(FROM), snapshot=snapshot(FROM), clusters=(cluster(),)))
    resolved = wrote(plan).resolved
    assert resolved is not None
    assert pinned_path(resolved) is None


@pytest.mark.parametrize("change", [{}, {"trainer": {"learningRate": "1e-5"}}])
@pytest.mark.parametrize("siblings", [{}, {"earlier": {"spec": {}}}])
def test_a_job_goes_on_when_its_source_is_gone_by_then(change: Json, siblings: dict[str, Json]) -> None:
    begun = status_after(decide(Observed(job(FROM), snapshot=None, siblings={"earlier": SAVED})))
    status = merged(begun, {"intent": {"ended": True}})
    for _ in ("the edit is reported", "the next generation begins") if change else ("it begins",):
        world = Observed(job(merged(FROM, change), status), snapshot=snapshot(FROM), siblings=siblings)
        status = status_after(decide(world))
    assert status["intent"]["clusterGeneration"] == 2
    assert pinned_path(Resolved.model_validate(status["resolved"])) == "/data/saved"


def test_another_source_is_looked_for() -> None:
    begun = status_after(decide(Observed(job(FROM), snapshot=None, siblings={"earlier": SAVED})))
    other = job(merged(FROM, {"checkpoint": {"from": {"job": "other"}}}), merged(begun, {"intent": {"ended": True}}))
    told = decide(Observed(other, snapshot=snapshot(FROM)))
    plan = decide(Observed(other | {"status": told.status}, snapshot=snapshot(FROM)))
    assert reasons(plan)["Validated"] == ("False", "CheckpointSourceMissing")


def test_a_folder_needs_no_job() -> None:
    spec = merged(FROM, {"checkpoint": {"from": None}})
    spec["checkpoint"]["from"] = {"path": "/data/other"}
    resolved = wrote(decide(Observed(job(spec), snapshot=None))).resolved
    assert resolved is not None
    assert pinned_path(resolved) is None
    assert config(spec)["data"]
