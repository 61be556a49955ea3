"""Initializers run before any NPU is held, and the last line of the running one is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import (
    IDENTITY,
    Json,
    at,
    decide,
    job,
    reasons,
    seen,
    small_spec,
    snapshot,
    status_begun,
    typed,
    wrote,
)

from rljob.api.status import State
from rljob.core.observed import UNSEEN, Observed, Unseen
from rljob.core.plan import CreateObject, Plan
from rljob.render.accelerator_table import OPERATOR_IMAGE
from rljob.render.initializer import initializers
from rljob.render.metadata import owner_reference
from rljob.render.names import initializer_name

PREPARED = small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]})
JOB_NAME = "sums-0a1b2-prepare"


OWN: Json = {"metadata": {"ownerReferences": [owner_reference(IDENTITY)]}}
"""A Job that the operator created."""


def ended(kind: str, **more: object) -> Json:
    return OWN | {"status": {"conditions": [{"type": kind, "status": "True"} | more]}}


def initializer_pod(name: str, **container: object) -> Json:
    return {
        "metadata": {"name": f"pod-{name}", "labels": {"rljob.dev/initializer": name}},
        "status": {"containerStatuses": [{"name": "initializer"} | container]},
    }


def preparing(found: Json | None, *pods: Json) -> Observed:
    return seen(
        job(PREPARED, status_begun(PREPARED)), snapshot=snapshot(PREPARED), initializers={JOB_NAME: found}, pods=pods
    )


def test_an_initializer_is_made_when_it_is_not_there() -> None:
    plan = decide(preparing(None))
    effect = plan.effects[0]
    assert isinstance(effect, CreateObject)
    assert effect.manifest["metadata"]["name"] == JOB_NAME


def test_an_unseen_initializer_is_not_a_missing_one() -> None:
    world = Observed(job(PREPARED, status_begun(PREPARED)), snapshot=snapshot(PREPARED))
    assert decide(world) == Plan(requeue_after_seconds=5.0)


def test_a_running_initializer_is_named() -> None:
    plan = decide(preparing(OWN))
    assert (wrote(plan).state, wrote(plan).reason) == (State.INITIALIZING, "InitializerRunning")
    assert plan.requeue_after_seconds == 3.0
    assert decide(Observed(job(PREPARED, plan.status), snapshot=snapshot(PREPARED), initializers={JOB_NAME: OWN})).empty


def test_an_initializer_that_cannot_start_says_why() -> None:
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such image"}}
    plan = decide(preparing(OWN | {"status": {}}, initializer_pod("prepare", state=waiting)))
    assert wrote(plan).reason == "ImagePullFailed"
    assert [note.type for note in plan.events] == ["Warning"]


def test_an_initializer_whose_code_is_fetched_by_the_operators_image_names_that_image() -> None:
    spec = small_spec(
        {
            "runtime": {"injection": "Auto"},
            "code": {"type": "Git", "git": {"url": "https://git.example/r.git", "revision": "a" * 40}},
        }
    )
    (first,) = initializers(typed(spec))
    waits = initializer_pod(first.name, state={"waiting": {"reason": "ErrImagePull"}})
    waits["status"]["containerStatuses"][0]["name"] = "fetch-code"
    world = preparing(OWN | {"status": {}}, waits)
    found = replace(
        world,
        job=job(spec, status_begun(spec)),
        snapshot=snapshot(spec),
        initializers={initializer_name(IDENTITY, first.name): OWN | {"status": {}}},
    )
    assert f"the operator's image {OPERATOR_IMAGE}" in str(wrote(decide(found)).message)


def test_a_failed_try_of_another_initializer_is_no_news_of_this_one() -> None:
    failed = initializer_pod("earlier", state={"terminated": {"exitCode": 1}})
    assert wrote(decide(preparing(OWN, failed))).reason == "InitializerRunning"


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


COMPLETE: Json = OWN | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}


def hearing(log: str | Unseen, told: Json | None = None) -> Plan:
    status = wrote_json(decide(preparing(OWN))) | ({"initializer": told} if told else {})
    world = Observed(
        job(PREPARED, status),
        snapshot=snapshot(PREPARED),
        initializers={JOB_NAME: OWN},
        pods=(),
        initializer_log=log,
    )
    return decide(world, seconds=60)


def wrote_json(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


def test_the_last_line_of_a_running_initializer_is_shown_without_an_event() -> None:
    plan = hearing("one\n10%\r20%\r\x1b30%\n\n")
    assert wrote(plan).message == "initializer prepare is running: 30%"
    assert plan.events == ()
    said = wrote(plan).initializer
    assert said is not None
    assert (said.name, said.line, said.observed_time) == ("prepare", "30%", "2026-01-01T12:01:00Z")


@pytest.mark.parametrize("log", [UNSEEN, "", "\n \n", "half\n"])
def test_nothing_is_written_when_an_initializer_says_nothing_new(log: str | Unseen) -> None:
    told = {"name": "prepare", "line": "half", "observedTime": "2026-01-01T12:00:00Z"}
    plan = hearing(log, told)
    assert wrote(plan).message == "initializer prepare is running: half"
    assert wrote_json(plan)["initializer"] == told


def test_the_words_of_an_earlier_initializer_are_not_those_of_this_one() -> None:
    told = {"name": "earlier", "line": "half", "observedTime": "2026-01-01T12:00:00Z"}
    plan = hearing(UNSEEN, told)
    assert wrote(plan).message == "initializer prepare is running"
    said = wrote(plan).initializer
    assert said is not None
    assert (said.name, said.line) == ("prepare", "")


def test_an_initializer_after_another_creates_an_event() -> None:
    plan = hearing(UNSEEN, {"name": "earlier", "line": "half", "observedTime": "2026-01-01T12:00:00Z"})
    assert [note.message for note in plan.events] == ["initializer prepare is running"]


def test_a_long_line_is_cut() -> None:
    said = wrote(hearing("x" * 5000)).initializer
    assert said is not None
    assert said.line == "x" * 200


def test_what_was_skipped_is_named_when_the_initializers_are_complete() -> None:
    words = "skipped: /m is there already\n"
    skipped = initializer_pod("prepare", state={"terminated": {"exitCode": 0, "message": words}})
    other = initializer_pod("prepare", state={"terminated": {"exitCode": 1, "message": "no disk"}})
    plan = decide(preparing(COMPLETE, skipped, other, {"metadata": {"labels": {}}}))
    message = next(entry.message for entry in wrote(plan).conditions if entry.type == "Initialized")
    assert message == "prepare skipped: /m is there already"
    assert wrote(plan).initializer is None
    unseen = Observed(
        job(PREPARED, status_begun(PREPARED)),
        snapshot=snapshot(PREPARED),
        initializers={JOB_NAME: COMPLETE},
    )
    assert reasons(decide(unseen))["Initialized"] == ("True", "InitializersComplete")


def event_with_note(note: str) -> Json:
    return {"metadata": {"name": "event"}, "note": note}


QUOTA = 'Error creating: pods "sums-0a1b2-prepare-x" is forbidden: failed quota: compute: must specify limits.cpu'


def refused(plan: Plan | None = None, *pods: Json, note: str = QUOTA, seconds: float = 10) -> Plan:
    """Return the decision about an initializer whose pod is not created, after an earlier one."""
    status = status_begun(PREPARED) if plan is None else wrote_json(plan)
    world = seen(
        job(PREPARED, status),
        snapshot=snapshot(PREPARED),
        initializers={JOB_NAME: OWN},
        pods=pods,
        initializer_events=(event_with_note(note),) if note else (),
    )
    return decide(world, seconds)


def test_an_initializer_whose_pod_is_refused_says_so_in_the_words_of_the_api_server() -> None:
    plan = refused()
    assert (wrote(plan).state, wrote(plan).reason) == (State.INITIALIZING, "PodsRefused")
    assert wrote(plan).message == f"initializer prepare: {QUOTA}"
    assert [note.type for note in plan.events] == ["Warning"]
    # Each try names another pod, and after an hour the events are gone.
    assert refused(plan, note="Error creating: pods y is forbidden").empty
    assert refused(plan, note="").empty


def test_an_initializer_whose_pod_is_created_after_all_runs() -> None:
    running = initializer_pod("prepare", state={"running": {}})
    assert wrote(refused(refused(), running)).reason == "InitializerRunning"


def test_a_refused_initializer_ends_the_job_at_the_start_deadline() -> None:
    plan = refused()
    assert refused(plan, seconds=1799).empty
    late = refused(plan, seconds=1800)
    assert wrote(late).reason == "StartDeadlineExceeded"
    assert wrote(late).message == f"PodsRefused: initializer prepare: {QUOTA}"


def test_the_deadline_of_a_refused_initializer_does_not_count_the_ones_before() -> None:
    late = refused(seconds=5000)
    intent = wrote(late).intent
    assert intent is not None
    assert (wrote(late).reason, intent.start_deadline) == ("PodsRefused", "2026-01-01T13:53:20Z")


def test_a_refused_initializer_is_not_given_up_while_its_pods_cannot_be_read() -> None:
    status = wrote_json(refused())
    world = seen(job(PREPARED, status), snapshot=snapshot(PREPARED), initializers={JOB_NAME: OWN}, pods=UNSEEN)
    assert wrote(decide(world, 1800)).reason == "PodsRefused"


def test_a_job_that_somebody_else_created_is_no_initializer() -> None:
    other = {"kind": "RLJob", "uid": "another job", "controller": True}
    loose = {**owner_reference(IDENTITY), "controller": False}
    for owners in ([], [other], [loose]):
        plan = decide(preparing(COMPLETE | {"metadata": {"ownerReferences": owners}}))
        assert (wrote(plan).state, wrote(plan).reason) == (State.FAILED, "NameTaken")
        assert f"Job {JOB_NAME} was not created by this operator; delete it" in str(wrote(plan).message)
