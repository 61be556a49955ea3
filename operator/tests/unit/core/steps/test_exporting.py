"""Exports run beside a job and after it, one at a time, and never end or delay it."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

import pytest
from builders import (
    IDENTITY,
    NOW,
    Json,
    answer,
    at,
    decide,
    job,
    merged,
    requests,
    running,
    saving,
    small_spec,
    snapshot,
    status_after,
    status_submitted,
    wrote,
)

from rljob.api.export_status import ExportedStep, ExportState
from rljob.api.texts import write_texts
from rljob.core import times
from rljob.core.observed import Observed, Refusal, RefusalCause
from rljob.core.plan import CreateObject, EventType, Plan
from rljob.render.metadata import owner_reference
from rljob_runtime.contract import ExportRequest, ExportResult

OUT = {"to": {"path": "/data/models"}}


def replace(seen: Observed, **facts: Any) -> Observed:  # noqa: ANN401 - of any field
    """Return another observation; `export_job` and `export_pods` are what is seen of the export."""
    names = {"export_job": "job", "export_pods": "pods"}
    told = {names[name]: facts.pop(name) for name in list(facts) if name in names}
    return with_fields(seen, **facts, export=with_fields(seen.export, **told))


def spec_with(export: Json | None, **more: Any) -> Json:  # noqa: ANN401 - of any field
    fields: Json = {"checkpoint": {"path": "/data/ckpt", "everySteps": 2}} | more
    return small_spec(saving(fields | ({"export": export} if export is not None else {})))


def world(export: Json | None, status: Json | None = None, *, saved: int | None = 2, **facts: Any) -> Observed:  # noqa: ANN401 - of any field
    """Return a run that has saved a step."""
    spec = spec_with(export, **facts.pop("more", {}))
    told = status or status_submitted()
    if saved is not None:
        checkpoint = {"step": saved, "path": "/data/ckpt", "savedTime": times.to_text(NOW), "bytes": 1 << 30}
        told = told | {"checkpoint": checkpoint}
    annotations = facts.pop("annotations", {})
    return running(job=job(spec, told, annotations=annotations), snapshot=snapshot(spec), **facts)


def after(seen: Observed, plan: Plan, **facts: Any) -> Observed:  # noqa: ANN401 - of any field
    """Return the world in which the status of a plan was written."""
    return replace(seen, job={**seen.job, "status": status_after(plan)}, **facts)


def finished(seen: Observed, word: str = "Succeeded") -> Observed:
    conditions = [
        {"type": "Finished", "status": "True", "reason": word, "lastTransitionTime": times.to_text(NOW)},
    ]
    told = {**seen.job["status"], "conditions": conditions, "finishedTime": times.to_text(NOW)}
    return replace(seen, job={**seen.job, "status": told}, clusters=())


def entries(plan: Plan) -> list[ExportedStep]:
    told = wrote(plan).export
    return [] if told is None else told.steps


def begun(export: Json, **facts: Any) -> tuple[Observed, ExportedStep]:  # noqa: ANN401 - of any field
    """Return the world after the decision to export, and its entry."""
    seen = world(export, **facts)
    plan = decide(seen)
    (entry,) = entries(plan)
    return after(seen, plan), entry


def k8s_job(**status: Any) -> Json:  # noqa: ANN401 - of any field
    return {"metadata": {"ownerReferences": [owner_reference(IDENTITY)]}, "status": status}


def condition(kind: str, **more: str) -> list[Json]:
    return [{"type": kind, "status": "True"} | more]


def ended_pod(message: str = "", code: int = 0, finished_at: str = "2026-01-01T12:00:00Z", **more: str) -> Json:
    end = {"exitCode": code, "message": message, "finishedAt": finished_at} | more
    return {"metadata": {"name": "p", "labels": {}}, "status": {"containerStatuses": [{"state": {"terminated": end}}]}}


EVERY = OUT | {"when": "EveryCheckpoint"}


def test_a_checkpoint_is_exported_while_the_run_goes_on() -> None:
    seen, entry = begun(EVERY)
    assert (entry.step, entry.state, entry.target, entry.automatic) == (2, ExportState.RUNNING, "/data/models", True)
    assert entry.reason == "Exporting"
    (effect,) = decide(replace(seen, export_job=None)).effects
    assert isinstance(effect, CreateObject)
    assert effect.manifest["metadata"]["name"] == entry.name
    words = effect.manifest["spec"]["template"]["spec"]["containers"][0]["command"]
    request = ExportRequest.from_json(words[-1])
    assert (request.checkpoint, request.step, request.folder) == ("/data/ckpt", 2, "/data/models")


def test_a_complete_export_says_where_it_is() -> None:
    seen, entry = begun(EVERY)
    result = ExportResult("Exported", step=2, path="/data/models/global_step_2", digest="a" * 64, size=7)
    pods = (ended_pod("killed", 137, "2026-01-01T11:00:00Z"), ended_pod(str(result.to_json(), "utf-8")))
    plan = decide(
        replace(seen, export_job=k8s_job(failed=1, succeeded=1, conditions=condition("Complete")), export_pods=pods)
    )
    (done,) = entries(plan)
    assert (done.state, done.path, done.digest, done.bytes) == (
        ExportState.SUCCEEDED,
        "/data/models/global_step_2",
        "a" * 64,
        7,
    )
    assert (done.attempts, done.name) == (2, entry.name)
    assert [note.reason for note in plan.events] == ["Exported"]


def test_an_export_that_is_not_all_that_was_trained_is_a_warning() -> None:
    seen, _ = begun(EVERY)
    result = ExportResult("Exported", "is the base model", step=2, path="/data/models/global_step_2")
    pods = (ended_pod(str(result.to_json(), "utf-8")),)
    plan = decide(replace(seen, export_job=k8s_job(succeeded=1, conditions=condition("Complete")), export_pods=pods))
    (done,) = entries(plan)
    assert (done.state, done.message) == (ExportState.SUCCEEDED, "is the base model")
    assert [(note.type, note.message) for note in plan.events] == [
        (EventType.WARNING, "step 2 is at /data/models/global_step_2; it is the base model")
    ]


@pytest.mark.parametrize(
    "message",
    ["not JSON", '{"reason": "Exported", "size": -5, "step": -1, "digest": "zz"}', "x" * 5000, '{"reason": 3}'],
)
def test_what_a_users_image_reports_is_bounded(message: str) -> None:
    seen, _ = begun(EVERY)
    found = k8s_job(succeeded=1, conditions=condition("Complete"))
    (done,) = entries(decide(replace(seen, export_job=found, export_pods=(ended_pod(message),))))
    assert (done.state, done.step, done.digest, done.path) == (ExportState.SUCCEEDED, 2, None, None)


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ((), "BackoffLimitExceeded: too often"),
        ((ended_pod(ExportResult("NoSpace", "free some").to_json().decode(), 65),), "NoSpace: free some"),
        ((ended_pod("", 137, reason="OOMKilled"),), "raise export.memory"),
        ((ended_pod("Traceback", 1),), "exit code 1: Traceback"),
    ],
    ids=["pods are gone", "reported", "out of memory", "last words"],
)
def test_a_failed_export_is_an_entry_and_a_warning(pods: tuple[Json, ...], words: str) -> None:
    seen, _ = begun(EVERY)
    failed = condition("Failed", reason="BackoffLimitExceeded", message="too often")
    plan = decide(replace(seen, export_job=k8s_job(failed=4, conditions=failed), export_pods=pods))
    (done,) = entries(plan)
    assert (done.state, done.reason, done.attempts) == (ExportState.FAILED, "ExportFailed", 4)
    assert words in str(done.message)
    assert [note.type for note in plan.events] == [EventType.WARNING]
    # It is not tried again: the next checkpoint is another one.
    assert entries_or_none(decide(after(seen, plan, progress=answer()))) == [done]


def entries_or_none(plan: Plan) -> list[ExportedStep]:
    return entries(plan) if plan.status is not None else []


def test_a_pod_that_cannot_start_is_explained() -> None:
    seen, _ = begun(EVERY)
    waits = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}}
    pod = {"metadata": {"name": "p", "labels": {}}, "status": {"containerStatuses": [{"name": "export"} | waits]}}
    (entry,) = entries(decide(replace(seen, export_job=k8s_job(active=1), export_pods=(pod,))))
    assert "no such image" in str(entry.message)


def test_newer_checkpoints_wait_and_the_newest_one_follows() -> None:
    seen, _ = begun(EVERY)
    told = merged(seen.job["status"], {"checkpoint": {"step": 8}})
    waits = replace(seen, job={**seen.job, "status": told}, export_job=k8s_job(active=1, ready=1), progress=answer())
    plan = decide(waits)
    assert [entry.step for entry in entries(plan)] == [2]
    ended = decide(replace(waits, export_job=k8s_job(conditions=condition("Complete")), export_pods=()))
    assert [entry.step for entry in entries(decide(after(waits, ended)))] == [2, 8]


def test_a_request_with_an_invalid_target_is_refused_instead_of_going_to_the_old_one() -> None:
    seen = finished(world(OUT | {"when": "OnRequest"}, annotations={"rljob.dev/export": "2"}))
    edited = spec_with({"when": "OnRequest", "to": {"path": "/nowhere/models"}})
    plan = decide(replace(seen, job={**seen.job, "spec": write_texts(edited)}))
    told = wrote(plan).export
    assert told is not None
    assert (told.request, told.steps) == ("2", [])
    (note,) = plan.events
    assert "spec.export.to.path: /nowhere/models is on no volume" in note.message


def test_the_best_step_is_chosen_by_the_export() -> None:
    seen = finished(world(OUT | {"when": "Best"}))
    plan = decide(seen)
    assert [entry.step for entry in entries(plan)] == [0]
    seen = after(seen, plan, export_job=k8s_job(conditions=condition("Complete")))
    text = ExportResult("Exported", step=6, path="/data/models/global_step_6").to_json().decode()
    done = decide(replace(seen, export_pods=(ended_pod(text),)), 1)
    assert [entry.step for entry in entries(done)] == [6]
    assert decide(after(seen, done), 2).empty


def test_a_finished_job_releases_its_cluster_before_the_export_ends() -> None:
    seen = world(OUT)
    clusters = seen.clusters
    done = after(finished(seen), decide(finished(seen)), export_job=k8s_job(active=1, ready=1))
    held = after(done, decide(done), clusters=clusters, export_job=k8s_job(active=1, ready=1))
    assert [getattr(effect, "kind", "") for effect in decide(held).effects] == ["RayCluster"]


@pytest.mark.parametrize(("text", "step"), [("4", 4), ("latest", 2), ("best", 0), ("4 2026-01-01T12:00:00Z", 4)])
def test_a_request_names_its_step(text: str, step: int) -> None:
    seen = world(OUT | {"when": "OnRequest"}, annotations={"rljob.dev/export": text})
    plan = decide(seen)
    told = wrote(plan).export
    assert told is not None
    assert (told.request, [(entry.step, entry.automatic) for entry in told.steps]) == (text, [(step, False)])


@pytest.mark.parametrize(
    ("export", "text", "saved", "words"),
    [
        (None, "4", 2, "no spec.export"),
        (OUT, "four", 2, "use a number, latest or best"),
        (OUT, "0", 2, "use a number"),
        (OUT, "9" * 400, 2, "use a number"),
        (OUT, " ", 2, "use a number"),
        (OUT, "latest", None, "saved no checkpoint"),
    ],
)
def test_a_request_that_cannot_be_met_creates_one_event(
    export: Json | None, text: str, saved: int | None, words: str
) -> None:
    seen = world(export, saved=saved, annotations={"rljob.dev/export": text})
    plan = decide(seen)
    assert entries(plan) == []
    assert words in plan.events[0].message
    again = decide(after(seen, plan, progress=answer()))
    assert all(note.reason != "ExportFailed" for note in again.events)


def test_nothing_is_exported_on_request_only() -> None:
    assert entries_or_none(decide(world(OUT | {"when": "OnRequest"}, progress=answer()))) == []


def denied(entry: ExportedStep, cause: RefusalCause = RefusalCause.DENIED) -> tuple[Refusal, ...]:
    return (Refusal("Job", entry.name, "exceeded quota", cause),)


def test_a_refused_export_is_tried_again_under_another_name() -> None:
    seen, entry = begun(EVERY)
    plan = decide(replace(seen, refusals=denied(entry), export_job=None))
    (waiting,) = entries(plan)
    assert (waiting.state, waiting.reason, waiting.message) == (ExportState.WAITING, "JobRefused", "exceeded quota")
    seen = after(seen, plan, refusals=denied(entry), progress=answer())
    assert wrote(decide(seen, 30)).state == "Training"
    (again,) = entries(decide(seen, 61))
    assert (again.state, again.step) == (ExportState.RUNNING, 2)
    assert again.name != entry.name


def test_refusals_end_an_export_and_never_the_job() -> None:
    seen, entry = begun(EVERY)
    for cause in (RefusalCause.INVALID, RefusalCause.NAME_TAKEN):
        refused = replace(seen, refusals=denied(entry, cause), export_job=None, progress=answer())
        plan = decide(refused)
        assert [each.state for each in entries(plan)] == [ExportState.FAILED]
        assert wrote(decide(after(refused, plan))).state == "Training"


def test_refusals_are_counted() -> None:
    seen, _ = begun(EVERY)
    seconds, plan = 0.0, Plan()
    for _ in range(8):
        (entry,) = (ExportedStep.model_validate(each) for each in seen.job["status"]["export"]["steps"])
        plan = decide(replace(seen, refusals=denied(entry), export_job=None), seconds)
        seen = after(seen, plan)
        if entries(plan)[0].state is ExportState.FAILED:
            break
        seconds += 1000
        seen = after(seen, decide(seen, seconds))
    assert entries(plan)[0].state is ExportState.FAILED
    assert entries(plan)[0].refusals == 7


def test_a_target_that_the_pods_do_not_mount_fails() -> None:
    seen = world(EVERY)
    edited = merged(seen.job["spec"], {"export": {"to": {"path": "/new/models"}}})
    template = edited["workerGroups"][0]["template"]
    template["volumes"].append({"name": "new", "persistentVolumeClaim": {"claimName": "new"}})
    template["volumeMounts"].append({"name": "new", "mountPath": "/new"})
    plan = decide(replace(seen, job={**seen.job, "spec": edited}))
    (done,) = entries(plan)
    assert done.state is ExportState.FAILED
    assert "is on no volume" in str(done.message)


def test_entries_are_bounded() -> None:
    seen = world(OUT | {"when": "OnRequest"})
    for number in range(12):
        asked = {**seen.job["metadata"], "annotations": {"rljob.dev/export": f"4 {number}"}}
        seen = replace(seen, job={**seen.job, "metadata": asked})
        seen = after(seen, decide(seen))
        seen = after(seen, decide(replace(seen, export_job=k8s_job(conditions=condition("Complete")))))
    assert len(seen.job["status"]["export"]["steps"]) == 8


def test_memory_follows_the_model_or_else_the_checkpoint() -> None:
    def requested(**more: Any) -> str:  # noqa: ANN401 - of any field
        seen, _ = begun(EVERY | more.pop("export", {}), **more)
        (effect,) = decide(replace(seen, export_job=None)).effects
        assert isinstance(effect, CreateObject)
        container = effect.manifest["spec"]["template"]["spec"]["containers"][0]
        return str(container["resources"]["requests"]["memory"])

    assert requested() == "3072Mi"  # 2 GiB and a checkpoint of 1 GiB
    assert requested(export={"memory": "9Gi"}) == "9Gi"
    shaped = {"model": {"path": "/data/model", "architecture": "Qwen2.5-0.5B"}}
    assert 5500 < int(requested(more=shaped).removesuffix("Mi")) < 6500  # 494 M parameters, 8 bytes on two ranks


def test_the_time_of_the_decision_is_recorded() -> None:
    (entry,) = entries(decide(world(EVERY), 5))
    assert entry.started_time == times.to_text(at(5))


def without_export(seen: Observed) -> Observed:
    """Return the world in which the user has removed spec.export."""
    spec = {name: section for name, section in seen.job["spec"].items() if name != "export"}
    return replace(seen, job={**seen.job, "spec": spec})


def test_an_export_whose_field_is_removed_while_it_waits_ends() -> None:
    seen, entry = begun(EVERY)
    plan = decide(replace(seen, refusals=denied(entry), export_job=None))
    waiting = without_export(after(seen, plan, refusals=denied(entry), progress=answer()))
    (removed,) = entries(decide(waiting, 61))
    assert (removed.state, removed.message) == (ExportState.FAILED, "spec.export was removed")


def test_a_request_asks_for_what_the_decision_needs() -> None:
    asked = world(OUT | {"when": "OnRequest"}, saved=None, annotations={"rljob.dev/export": "latest"})
    assert requests(asked.job, asked.clusters, asked.head_pod, NOW).snapshot_name is not None


def test_a_checkpoint_of_unknown_size_gets_the_default_memory() -> None:
    seen = world(EVERY)
    told = seen.job["status"] | {"checkpoint": {"step": 2, "path": "/data/ckpt", "savedTime": times.to_text(NOW)}}
    seen = replace(seen, job={**seen.job, "status": told})
    (effect,) = decide(after(seen, decide(seen), export_job=None)).effects
    assert isinstance(effect, CreateObject)
    container = effect.manifest["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["requests"]["memory"]


@pytest.mark.parametrize(
    ("to", "told"),
    [
        ({"type": "PVC", "persistentVolumeClaim": {"claimName": "models", "subPath": "sums"}}, "pvc models:/sums"),
        (
            {"type": "HuggingFace", "huggingFace": {"repository": "team/sums", "secretRef": {"name": "hub"}}},
            "HuggingFace team/sums",
        ),
        ({"type": "MLflow", "mlflow": {"trackingUrl": "https://ml.example", "experiment": "sums"}}, "MLflow sums"),
    ],
)
def test_the_target_is_named(to: Json, told: str) -> None:
    _, entry = begun({"when": "EveryCheckpoint", "to": to})
    assert entry.target == told
