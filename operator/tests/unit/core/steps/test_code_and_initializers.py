"""The user's code is frozen before anything starts; what an initializer says is shown while it runs."""

import pytest
from builders import IDENTITY, Json, decide, job, reasons, small_spec, snapshot, status_begun, wrote

from rljob.api.status import State
from rljob.core.observed import UNSEEN, Observed, Unseen
from rljob.core.plan import CreateObject, Plan
from rljob.render.code import build_code_copy

PREPARED = small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]})
JOB_NAME = "sums-0a1b2-prepare"


def initializer_pod(name: str, **container: object) -> Json:
    return {
        "metadata": {"name": f"pod-{name}", "labels": {"rljob.dev/initializer": name}},
        "status": {"containerStatuses": [{"name": "initializer"} | container]},
    }


def preparing(found: Json | None, *pods: Json) -> Observed:
    return Observed(
        job(PREPARED, status_begun(PREPARED)), snapshot=snapshot(PREPARED), initializers={JOB_NAME: found}, pods=pods
    )


COMPLETE: Json = {"status": {"conditions": [{"type": "Complete", "status": "True"}]}}
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


def test_missing_code_is_told_and_waited_for_until_the_start_deadline() -> None:
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


def test_the_commit_of_git_is_its_digest_and_is_fetched_before_any_npu_is_held() -> None:
    git = {"url": "https://git.example/rewards", "revision": "a" * 40}
    spec = small_spec({"code": {"type": "Git", "git": git}})
    resolved = wrote(decide(Observed(job(spec), snapshot=None))).resolved
    assert resolved is not None
    assert resolved.code is not None
    assert resolved.code.digest == "a" * 40
    assert resolved.initializers == ["sums-0a1b2-fetch-code"]


def hearing(log: str | Unseen, told: Json | None = None) -> Plan:
    status = wrote_json(decide(preparing({}))) | ({"initializer": told} if told else {})
    world = Observed(
        job(PREPARED, status),
        snapshot=snapshot(PREPARED),
        initializers={JOB_NAME: {}},
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


def test_an_initializer_after_another_is_told_by_an_event() -> None:
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
