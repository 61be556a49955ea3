"""Evaluations run beside a job and after it, one at a time, and never end or delay it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from builders import (
    IDENTITY,
    NOW,
    Json,
    answer,
    decide,
    job,
    merged,
    running,
    saving,
    small_spec,
    snapshot,
    status_after,
    status_submitted,
    validate,
    wrote,
)

from rljob.api.evaluation import EvaluatedStep, EvaluationState
from rljob.core import times
from rljob.core.observed import UNSEEN, Observed, Refusal, RefusalCause
from rljob.core.plan import CreateObject, EventType, Plan
from rljob.render.metadata import owner_reference

EVERY: Json = {"every": 1}


def world(evaluation: Json | None, *, saved: int | None = 2, **facts: Any) -> Observed:  # noqa: ANN401 - of any field
    """Return a run that has saved a step."""
    fields: Json = {"checkpoint": {"path": "/data/ckpt", "everySteps": 2}} | facts.pop("more", {})
    spec = small_spec(saving(fields | ({"evaluation": evaluation} if evaluation is not None else {})))
    told = status_submitted()
    if saved is not None:
        checkpoint = {"step": saved, "path": "/data/ckpt", "savedTime": times.to_text(NOW), "bytes": 1 << 30}
        told = told | {"checkpoint": checkpoint}
    return running(job=job(spec, told), snapshot=snapshot(spec), **facts)


def after(seen: Observed, plan: Plan, **facts: Any) -> Observed:  # noqa: ANN401 - of any field
    """Return the world in which the status of a plan was written."""
    return replace(seen, job={**seen.job, "status": status_after(plan)}, **facts)


def finished(seen: Observed, word: str = "Succeeded") -> Observed:
    told = {**seen.job["status"], "conditions": end(word), "finishedTime": times.to_text(NOW)}
    return replace(seen, job={**seen.job, "status": told}, clusters=())


def end(word: str, message: str = "") -> list[Json]:
    common = {"type": "Finished", "status": "True", "lastTransitionTime": times.to_text(NOW)}
    return [common | {"reason": word, "message": message}]


def saved_at(seen: Observed, step: int) -> Observed:
    return replace(seen, job={**seen.job, "status": merged(seen.job["status"], {"checkpoint": {"step": step}})})


def entries(plan: Plan) -> list[EvaluatedStep]:
    told = wrote(plan).evaluation if plan.status is not None else None
    return [] if told is None else told.steps


def begun(evaluation: Json, **facts: Any) -> tuple[Observed, EvaluatedStep]:  # noqa: ANN401 - of any field
    """Return the world after the decision to evaluate, and its entry."""
    seen = world(evaluation, **facts)
    plan = decide(seen)
    (entry,) = entries(plan)
    return after(seen, plan), entry


def child(word: str | None = None, *, reward: str | None = None, **status: Any) -> Json:  # noqa: ANN401 - of any field
    told: Json = status | ({"conditions": end(word, "why")} if word else {})
    if reward is not None:
        progress = {"step": 0, "totalSteps": 0, "summary": "0/0", "observedTime": times.to_text(NOW)}
        told |= {"progress": progress | {"reward": reward}}
    return {
        "apiVersion": "rljob.dev/v1alpha1",
        "kind": "RLJob",
        "metadata": {"name": "c", "namespace": "ns", "uid": "u", "ownerReferences": [owner_reference(IDENTITY)]},
        "spec": {},
        "status": told,
    }


def made(plan: Plan) -> Json:
    (effect,) = plan.effects
    assert isinstance(effect, CreateObject)
    return dict(effect.manifest)


def test_a_checkpoint_is_evaluated_by_a_job_that_would_be_accepted() -> None:
    seen, entry = begun(EVERY)
    assert (entry.step, entry.state, entry.created) == (2, EvaluationState.RUNNING, False)
    manifest = made(decide(replace(seen, evaluation=None)))
    assert (manifest["kind"], manifest["metadata"]["name"]) == ("RLJob", entry.name)
    assert manifest["metadata"]["ownerReferences"] == [owner_reference(IDENTITY)]
    spec = manifest["spec"]
    conversion = spec["initializers"][0]["conversion"]
    folder = "/data/ckpt/evaluation"
    assert conversion == {"format": "Checkpoint", "from": "/data/ckpt", "step": 2, "to": folder}
    assert (spec["trainer"]["mode"], spec["model"]["path"]) == ("Evaluate", folder)
    assert not {"checkpoint", "export", "evaluation", "stopRules", "suspend"} & set(spec)
    checked = validate(entry.name, spec)
    assert checked.violations == ()


def test_the_conversion_has_the_memory_that_the_checkpoint_needs() -> None:
    seen, _ = begun(EVERY)
    (initializer,) = made(decide(replace(seen, evaluation=None)))["spec"]["initializers"]
    assert initializer["memory"].endswith("Mi")
    stated, _ = begun(EVERY | {"memory": "7Gi"})
    (initializer,) = made(decide(replace(stated, evaluation=None)))["spec"]["initializers"]
    assert initializer["memory"] == "7Gi"
    told = {name: value for name, value in seen.job["status"]["checkpoint"].items() if name != "bytes"}
    unknown = replace(seen, job={**seen.job, "status": {**seen.job["status"], "checkpoint": told}}, evaluation=None)
    (initializer,) = made(decide(unknown))["spec"]["initializers"]
    assert "memory" not in initializer


def test_files_and_size_of_the_evaluation_are_its_own() -> None:
    own = EVERY | {"validation": ["/data/aime.parquet"], "nodes": 1, "devicesPerNode": 1}
    seen, _ = begun(own)
    spec = made(decide(replace(seen, evaluation=None)))["spec"]
    assert spec["data"]["validation"] == ["/data/aime.parquet"]
    assert (spec["workerGroups"][0]["nodes"], spec["workerGroups"][0]["devicesPerNode"]) == (1, 1)


def test_a_log_volume_is_kept() -> None:
    seen, _ = begun(EVERY, more={"observability": {"logPath": "/data/logs", "trackers": ["tensorboard"]}})
    assert made(decide(replace(seen, evaluation=None)))["spec"]["observability"] == {"logPath": "/data/logs"}


def test_a_score_is_recorded_and_reported_once() -> None:
    seen, _ = begun(EVERY)
    plan = decide(replace(seen, evaluation=child("Succeeded", reward="0.75")))
    (done,) = entries(plan)
    assert (done.state, done.score) == (EvaluationState.SUCCEEDED, "0.75")
    assert [(note.type, note.reason) for note in plan.events] == [(EventType.NORMAL, "Evaluated")]
    assert entries(decide(after(seen, plan, progress=answer()))) == [done]


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (child("Failed"), "is Failed: why"),
        (child("Stopped", reward="0.5"), "is Stopped"),
        (child("Succeeded"), "without a score"),
        (child(state="Invalid", message="no such class"), "is invalid: no such class"),
    ],
    ids=["failed", "stopped", "no score", "invalid"],
)
def test_an_evaluation_without_a_score_is_an_entry_and_a_warning(found: Json, words: str) -> None:
    seen, _ = begun(EVERY)
    plan = decide(replace(seen, evaluation=found))
    (done,) = entries(plan)
    assert (done.state, done.score) == (EvaluationState.FAILED, None)
    assert words in str(done.message)
    assert [(note.type, note.reason) for note in plan.events] == [(EventType.WARNING, "EvaluationFailed")]


def test_the_state_of_the_evaluation_is_shown_while_it_runs() -> None:
    seen, _ = begun(EVERY)
    plan = decide(replace(seen, evaluation=child(state="Pending")))
    (entry,) = entries(plan)
    assert (entry.created, entry.message) == (True, "Pending")


@pytest.mark.parametrize("cause", list(RefusalCause))
def test_a_refused_one_is_an_entry_and_the_next_checkpoint_is_tried(cause: RefusalCause) -> None:
    seen, entry = begun(EVERY)
    refused = replace(seen, evaluation=None, refusals=(Refusal("RLJob", entry.name, "quota of jobs", cause),))
    plan = decide(refused)
    (done,) = entries(plan)
    assert (done.state, done.message) == (EvaluationState.FAILED, "RLJobRefused: quota of jobs")
    # What is remembered of the refusal ends nothing.
    recorded = after(refused, plan, progress=answer())
    assert wrote(decide(recorded)).state == "Training"
    assert [entry.step for entry in entries(decide(saved_at(recorded, 4)))] == [2, 4]


def test_nothing_is_evaluated_while_the_snapshot_cannot_be_read() -> None:
    assert entries(decide(replace(world(EVERY), snapshot=UNSEEN, progress=answer()))) == []


def test_a_run_that_has_saved_nothing_has_nothing_to_evaluate() -> None:
    assert entries(decide(world(EVERY, saved=None, progress=answer()))) == []


@pytest.mark.parametrize(
    ("every", "steps", "evaluated"),
    [
        (1, (2, 4, 5, 6), [2, 4, 6]),  # 5 was saved on the way
        (2, (2, 4, 6, 8), [4, 8]),
        (2, (2, 6, 7, 12), [6, 12]),  # 4 and 10 were never seen
        (1, (4, 2, 4, 6), [4, 6]),  # trained once more after a restart
    ],
)
def test_every_nth_checkpoint_is_evaluated(every: int, steps: tuple[int, ...], evaluated: list[int]) -> None:
    seen, found = world({"every": every}, saved=None, progress=answer()), child("Succeeded", reward="1")
    for saved in steps:
        told = {"step": saved, "path": "/data/ckpt", "savedTime": times.to_text(NOW)}
        seen = replace(seen, job={**seen.job, "status": {**seen.job["status"], "checkpoint": told}})
        for _ in range(3):
            plan = decide(replace(seen, evaluation=found))
            if plan.status is not None:
                seen = after(seen, plan)
    assert [entry["step"] for entry in seen.job["status"]["evaluation"]["steps"]] == evaluated


def test_only_the_last_entries_are_kept() -> None:
    seen, found = world(EVERY, progress=answer()), child("Succeeded", reward="1")
    for saved in range(2, 82, 2):
        seen = saved_at(seen, saved)
        for _ in range(2):
            seen = after(seen, decide(replace(seen, evaluation=found)))
    steps = [entry["step"] for entry in seen.job["status"]["evaluation"]["steps"]]
    assert (len(steps), steps[-1]) == (16, 80)
