"""What exports and evaluations have in common: one at a time, beside the run, and nothing of them ends the job."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
from builders import (
    IDENTITY,
    NOW,
    Json,
    answer,
    decide,
    job,
    requests,
    running,
    saving,
    small_spec,
    snapshot,
    status_after,
    status_submitted,
    wrote,
)

from rljob.core import times
from rljob.core.observed import ExportSeen, Manifest, Observed, Unseen
from rljob.core.plan import Plan
from rljob.core.transitions.checkpoint_consumers import CONSUMERS, EVALUATIONS, EXPORTS, Consumer
from rljob.render.metadata import owner_reference

FINISHED = {"type": "Finished", "status": "True", "lastTransitionTime": times.to_text(NOW)}


@dataclass(frozen=True)
class Row:
    """One of them, with what its field may be and what its child reports."""

    consumer: Consumer[Any, Any]
    always: Json
    at_the_end: Json
    running: Json
    ended: Json

    def seen(self, world: Observed, child: Manifest | Unseen | None) -> Observed:
        """Return the world with this child."""
        if self.consumer is EXPORTS:
            return replace(world, export=ExportSeen(child))
        return replace(world, evaluation=child)

    def world(self, stated: Json, **more: Any) -> Observed:  # noqa: ANN401 - of any field
        """Return a run that has saved a step."""
        fields = {"checkpoint": {"path": "/data/ckpt", "everySteps": 2}, self.consumer.field: stated}
        spec = small_spec(saving(fields | more))
        saved = {"step": 2, "path": "/data/ckpt", "savedTime": times.to_text(NOW), "bytes": 1 << 30}
        return running(job=job(spec, status_submitted() | {"checkpoint": saved}), snapshot=snapshot(spec))

    def begun(self) -> Observed:
        """Return the world after the decision."""
        world = self.world(self.always)
        return after(world, decide(world))

    def entries(self, plan: Plan) -> list[Any]:
        """Return what a plan records."""
        return [] if plan.status is None else self.consumer.entries(wrote(plan))

    def name_asked_for(self, world: Observed) -> str | None:
        asked = requests(world.job, world.clusters, world.head_pod, NOW)
        return asked.export_name if self.consumer is EXPORTS else asked.evaluation_name


def after(seen: Observed, plan: Plan) -> Observed:
    """Return the world in which the status of a plan was written."""
    return replace(seen, job={**seen.job, "status": status_after(plan)})


def finished(seen: Observed, word: str = "Succeeded") -> Observed:
    told = {"conditions": [FINISHED | {"reason": word}], "finishedTime": times.to_text(NOW)}
    return replace(seen, job={**seen.job, "status": {**seen.job["status"], **told}}, clusters=())


def child(status: Mapping[str, Any]) -> Json:
    metadata = {"name": "c", "namespace": "ns", "uid": "u", "ownerReferences": [owner_reference(IDENTITY)]}
    return {"apiVersion": "v1", "kind": "any", "metadata": metadata, "spec": {}, "status": status}


ROWS = {
    "export": Row(
        EXPORTS,
        always={"to": {"path": "/data/models"}, "when": "EveryCheckpoint"},
        at_the_end={"to": {"path": "/data/models"}},
        running=child({"active": 1, "ready": 1}),
        ended=child({"conditions": [{"type": "Complete", "status": "True"}]}),
    ),
    "evaluation": Row(
        EVALUATIONS,
        always={"every": 1},
        at_the_end={"every": 9},
        running=child({"state": "Queued"}),
        ended=child({"conditions": [FINISHED | {"reason": "Failed", "message": "why"}]}),
    ),
}


@pytest.fixture(params=ROWS)
def row(request: pytest.FixtureRequest) -> Row:
    return ROWS[request.param]


def test_each_row_has_its_tests() -> None:
    assert [each.consumer for each in ROWS.values()] == list(CONSUMERS)


def test_one_that_could_not_be_read_decides_nothing(row: Row) -> None:
    assert wrote(decide(replace(row.begun(), progress=answer()))).state == "Training"


def test_it_is_asked_for_only_while_one_is_under_way(row: Row) -> None:
    begun = row.begun()
    (entry,) = begun.job["status"][row.consumer.field]["steps"]
    assert row.name_asked_for(begun) == entry["name"]
    assert row.name_asked_for(row.world(row.always)) is None


def test_one_under_way_keeps_no_step_from_being_recorded(row: Row) -> None:
    begun = replace(row.seen(row.begun(), row.running), progress=answer())
    shown = after(begun, decide(begun))
    plan = decide(shown)
    assert wrote(plan).state == "Training"
    assert decide(after(shown, plan)).requeue_after_seconds == 10.0


def test_an_object_of_somebody_else_is_not_taken_for_it(row: Row) -> None:
    (done,) = row.entries(decide(row.seen(row.begun(), {"metadata": {}})))
    assert done.state == "Failed"
    assert done.message == f"{row.consumer.kind} {done.name} was not created by this operator; delete it"


def test_one_that_was_deleted_is_not_created_again(row: Row) -> None:
    begun = row.begun()
    shown = after(begun, decide(row.seen(begun, row.running)))
    (done,) = row.entries(decide(row.seen(shown, None)))
    assert (done.state, done.message) == ("Failed", f"{row.consumer.kind} {done.name} was deleted")


def test_a_removed_field_ends_one_that_was_not_created(row: Row) -> None:
    begun = row.begun()
    spec = {name: value for name, value in begun.job["spec"].items() if name != row.consumer.field}
    (done,) = row.entries(decide(row.seen(replace(begun, job={**begun.job, "spec": spec}), None)))
    assert (done.state, done.message) == ("Failed", f"spec.{row.consumer.field} was removed")


@pytest.mark.parametrize(("word", "count"), [("Succeeded", 1), ("Failed", 0)])
def test_the_last_checkpoint_of_a_success_counts(row: Row, word: str, count: int) -> None:
    seen = row.world(row.at_the_end)
    assert row.entries(decide(replace(seen, progress=answer()))) == []
    assert len(row.entries(decide(finished(seen, word)))) == count


def test_a_finished_job_is_kept_until_it_has_ended(row: Row) -> None:
    seen = finished(row.world(row.always, cleanup={"jobAfterSeconds": 0}))
    seen = after(seen, decide(seen))
    shown = after(seen, decide(row.seen(seen, row.running), 1))
    waits = decide(row.seen(shown, row.running), 2)
    assert (waits.effects, waits.status) == ((), None)
    assert waits.requeue_after_seconds == row.consumer.poll_seconds
    ended = after(shown, decide(row.seen(shown, row.ended), 3))
    assert [type(effect).__name__ for effect in decide(ended, 4).effects] == ["DeleteObject"]
