"""The cause of an attempt's end, and what follows from it."""

from typing import Any

import pytest
from builders import saving, small_spec

from rljob.api.lifecycle import Restart
from rljob.api.status import Attempt, AttemptOutcome, Budget, FailureCause
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.attempts.classify import (
    BACKOFF_JITTER,
    BACKOFF_SECONDS_MAX,
    EXIT_CODES,
    INFRASTRUCTURE_RESTARTS,
    POD_REASONS,
    REASONS,
    UNCOUNTED_MAX,
    Action,
    Failure,
    classify,
    judge,
    restart_of,
    with_doubt,
)
from rljob.core.reasons import Reason
from rljob_runtime.contract import Outcome

USER, INFRASTRUCTURE = FailureCause.USER, FailureCause.INFRASTRUCTURE
PREEMPTION, CONFIGURATION = FailureCause.PREEMPTION, FailureCause.CONFIGURATION
SAVES: dict[str, Any] = {"checkpoint": {"path": "/data/saves", "everySteps": 5}}


def outcome(code: int, reason: str = "RunFailed", rule: str | None = None, unruled: int | None = None) -> Outcome:
    return Outcome(code, reason, "its words", rule=rule, unruled_exit_code=unruled)


def pod(name: str = "w-1", *, disruption: str = "", reason: str = "", ended: str = "", node: str = "n1") -> Any:  # noqa: ANN401 - a manifest
    conditions = [{"type": "Ready", "status": "False"}]
    if disruption:
        conditions.append({"type": "DisruptionTarget", "status": "True", "reason": disruption})
    container = {"state": {"terminated": {"reason": ended, "exitCode": 137}}} if ended else {}
    state = {"conditions": conditions, "reason": reason, "containerStatuses": [container]}
    return {"metadata": {"name": name}, "spec": {"nodeName": node} if node else {}, "status": state}


def restart(**fields: object) -> Restart:
    return Restart.model_validate({"maxRestarts": 2, "maxInfrastructureRestarts": 3, **fields})


def failure(cause: FailureCause = USER, reason: str = "RunFailed", **fields: Any) -> Failure:  # noqa: ANN401 - of Failure
    return Failure(cause, reason, "its words", **{"exit_code": 1, **fields})


@pytest.mark.parametrize(
    ("ended", "cause"),
    [
        (outcome(1), USER),
        (outcome(137), USER),
        (outcome(64, "PathMissing"), CONFIGURATION),
        (outcome(65, "DevicesMissing"), INFRASTRUCTURE),
        (outcome(66, "Stopped"), PREEMPTION),
        (outcome(67, "Stalled"), INFRASTRUCTURE),
        (outcome(68, "StopRuleMatched", rule="nan"), CONFIGURATION),
        (outcome(68, "RunFailed", rule="flaky", unruled=1), USER),
        (outcome(68, "NodeLost", rule="flaky", unruled=65), INFRASTRUCTURE),
        (outcome(1, "OutOfMemory"), USER),
        (outcome(1, "DeviceOutOfMemory"), USER),
        (outcome(1, Reason.HEAD_LOST), INFRASTRUCTURE),
        (outcome(1, Reason.ACTIVE_DEADLINE_EXCEEDED), CONFIGURATION),
        (outcome(1, ""), USER),
    ],
)  # fmt: skip
def test_an_end_is_somebodys_failure(ended: Outcome, cause: FailureCause) -> None:
    assert classify(ended).cause is cause


@pytest.mark.parametrize(
    ("seen", "cause", "reason"),
    [
        (pod(ended="OOMKilled"), USER, "OOMKilled"),
        (pod(reason="Evicted"), INFRASTRUCTURE, "Evicted"),
        (pod(disruption="PreemptionByScheduler"), PREEMPTION, "PreemptionByScheduler"),
        (pod(disruption="DeletionByTaintManager", ended="OOMKilled"), INFRASTRUCTURE, "DeletionByTaintManager"),
        (pod(disruption="EvictionByEvictionAPI"), PREEMPTION, "EvictionByEvictionAPI"),
        (pod(disruption="DeletionByPodGC"), INFRASTRUCTURE, "DeletionByPodGC"),
        (pod(disruption="TerminationByKubelet"), INFRASTRUCTURE, "TerminationByKubelet"),
        (pod(reason="Preempting"), PREEMPTION, "Preempting"),
        (pod(reason="NodeLost"), INFRASTRUCTURE, "NodeLost"),
        (pod(reason="NodeShutdown"), INFRASTRUCTURE, "NodeShutdown"),
        (pod(reason="Terminated"), INFRASTRUCTURE, "Terminated"),
        (pod(reason="UnexpectedAdmissionError"), INFRASTRUCTURE, "UnexpectedAdmissionError"),
    ],
)
def test_what_the_kubelet_says_of_a_pod_explains_the_end(seen: Any, cause: FailureCause, reason: str) -> None:  # noqa: ANN401 - a manifest
    found = classify(outcome(1), [pod("w-0"), seen])
    assert (found.cause, found.reason, found.node) == (cause, reason, "n1")
    assert found.message == f"pod w-1: {reason}; its words"


def test_what_can_never_work_stays_that_whatever_became_of_the_pods() -> None:
    assert classify(outcome(64, "PathMissing"), [pod(reason="Evicted")]).reason == "PathMissing"


def test_a_pod_without_a_node_blames_none() -> None:
    found = classify(Outcome(1, "RunFailed", ""), [pod(reason="Evicted", node="")])
    assert (found.node, found.message) == (None, "pod w-1: Evicted")


def test_the_nodes_that_did_not_pass_the_check_are_blamed() -> None:
    found = classify(Outcome(65, "LinkDown", "its words", nodes=("n2", "n3")))
    assert (found.cause, found.node, found.unfit) == (INFRASTRUCTURE, "n2", ("n2", "n3"))


def test_a_lost_node_is_blamed_and_not_unfit() -> None:
    found = classify(Outcome(65, "NodeLost", "its words", suspect="n2"))
    assert (found.cause, found.node, found.unfit) == (INFRASTRUCTURE, "n2", ())


def test_every_row_names_its_source() -> None:
    assert all(row.source for table in (EXIT_CODES, REASONS, POD_REASONS) for row in table.values())


def test_the_first_failure_of_the_run_gets_another_driver_and_the_second_another_cluster() -> None:
    first = judge(failure(), restart(), Budget(), 0, "a")
    assert first.action is Action.RESTART_DRIVER
    second = judge(failure(), restart(), first.budget, 0, "b")
    assert second.action is Action.RESTART_CLUSTER
    third = judge(failure(), restart(), second.budget, 0, "c")
    assert (third.action, third.why) == (Action.FAIL, "restart.maxRestarts 2 used up")


@pytest.mark.parametrize(
    ("scope", "found", "action"),
    [
        ("Cluster", failure(), Action.RESTART_CLUSTER),
        ("Driver", failure(), Action.RESTART_DRIVER),
        ("Driver", failure(INFRASTRUCTURE, "HeadLost"), Action.RESTART_CLUSTER),
        ("Driver", failure(INFRASTRUCTURE, "NodeLost", node="n1"), Action.RESTART_CLUSTER),
        ("Workers", failure(), Action.RESTART_DRIVER),
        ("Workers", failure(INFRASTRUCTURE, "HeadLost"), Action.RESTART_CLUSTER),
        ("Workers", failure(INFRASTRUCTURE, "NodeLost", node="n1"), Action.RESTART_WORKERS),
        ("Auto", failure(INFRASTRUCTURE, "WorkerLost"), Action.RESTART_WORKERS),
        ("Auto", failure(node="n1", reason="OOMKilled"), Action.RESTART_WORKERS),
        ("Auto", failure(INFRASTRUCTURE, "NodeLost", unfit=("n1",)), Action.RESTART_CLUSTER),
        ("Auto", failure(INFRASTRUCTURE, "DeviceFault", node="n1", fault="SeparateNPU"), Action.RESTART_CLUSTER),
        ("Auto", failure(PREEMPTION, "EvictionByEvictionAPI"), Action.RESTART_WORKERS),
        ("Auto", failure(PREEMPTION, "PreemptionByScheduler", exit_code=66), Action.RESTART_CLUSTER),
        ("Auto", failure(PREEMPTION, "Stopped", exit_code=66), Action.RESTART_WORKERS),
        ("Cluster", failure(INFRASTRUCTURE, "WorkerLost"), Action.RESTART_CLUSTER),
    ],
)
def test_what_a_restart_replaces(scope: str, found: Failure, action: Action) -> None:
    assert judge(found, restart(scope=scope), Budget(), 0, "a").action is action


def test_a_second_loss_without_a_newer_checkpoint_gets_a_new_cluster() -> None:
    lost = failure(INFRASTRUCTURE, "WorkerLost")
    first = judge(lost, restart(), Budget(), 0, "a")
    second = judge(lost, restart(), first.budget, 0, "b")
    kept = judge(lost, restart(scope="Workers", backoffSeconds=20), first.budget, 0, "b")
    assert [each.first for each in (first, second, kept)] == [True, False, False]
    assert [each.action.value for each in (first, second, kept)] == [
        "RestartWorkers",
        "RestartCluster",
        "RestartWorkers",
    ]
    # The NPUs of the other pods do not wait idle for longer.
    patient = restart(scope="Workers", backoffSeconds=61)
    assert judge(lost, patient, first.budget, 0, "b").action is Action.RESTART_CLUSTER
    assert judge(lost, patient, Budget(), 0, "b").action is Action.RESTART_WORKERS


def test_npus_do_not_wait_idle_for_a_late_driver() -> None:
    assert judge(failure(), restart(backoffSeconds=61), Budget(), 0, "a").action is Action.RESTART_CLUSTER


def test_each_cause_has_its_own_budget() -> None:
    spent = Budget(user_failures=2, infrastructure_failures=2)
    assert judge(failure(), restart(), spent, 0, "a").action is Action.FAIL
    assert judge(failure(INFRASTRUCTURE), restart(), spent, 0, "a").budget.infrastructure_failures == 3
    used_up = judge(failure(INFRASTRUCTURE), restart(), Budget(infrastructure_failures=3), 0, "a")
    assert used_up.why == "restart.maxInfrastructureRestarts 3 used up"
    assert judge(failure(PREEMPTION), restart(), spent, 0, "a").budget == spent


def test_without_a_budget_the_first_failure_ends_the_job() -> None:
    verdict = judge(failure(), Restart(), Budget(), 0, "a")
    assert (verdict.action, verdict.why) == (Action.FAIL, "")
    only_losses = Restart.model_validate({"maxInfrastructureRestarts": 1})
    assert judge(failure(), only_losses, Budget(), 0, "a").why == "restart.maxRestarts is 0"


def test_nobody_pays_for_a_preemption() -> None:
    assert judge(failure(PREEMPTION), Restart(), Budget(), 0, "a").action is Action.RESTART_CLUSTER


def test_a_newer_checkpoint_forgives_what_was_before() -> None:
    spent = Budget(user_failures=2, infrastructure_failures=3, uncounted=4, since_step=10)
    assert judge(failure(), restart(), spent, 10, "a").action is Action.FAIL
    assert judge(failure(), restart(), spent, 15, "a").budget == Budget(user_failures=1, since_step=15)


def test_a_budget_counts_from_an_older_checkpoint_that_somebody_went_back_to() -> None:
    spent = Budget(user_failures=1, infrastructure_failures=3, since_step=4800)
    back = judge(failure(), restart(), spent, 3000, "a").budget
    assert back == Budget(user_failures=2, infrastructure_failures=3, since_step=3000), (
        "an older checkpoint does not reset the counters"
    )
    assert judge(failure(), restart(), back, 3000, "a").action is Action.FAIL
    assert judge(failure(), restart(), back, 3100, "a").budget == Budget(user_failures=1, since_step=3100)


def test_a_checkpoint_that_is_not_seen_for_a_while_is_no_newer_one_afterwards() -> None:
    spent = Budget(since_step=4800)
    for saved in (4800, 0, 4800):
        spent = judge(failure(), restart(), spent, saved, "a").budget
    assert spent == Budget(user_failures=3, since_step=4800)


@pytest.mark.parametrize(
    ("change", "limit"),
    [
        ({}, 0),
        (saving(SAVES), INFRASTRUCTURE_RESTARTS),
        (saving(SAVES | {"restart": {"maxInfrastructureRestarts": 0}}), 0),
        (saving(SAVES | {"restart": {"maxInfrastructureRestarts": 9}}), 9),
    ],
)
def test_a_loss_is_answered_without_a_word_where_something_was_saved(change: dict[str, Any], limit: int) -> None:
    spec = RLJobSpec.model_validate(small_spec(change))
    assert restart_of(spec).max_infrastructure_restarts == limit
    assert restart_of(spec).max_restarts == 0


def test_what_another_attempt_cannot_cure_is_not_tried_again() -> None:
    assert judge(failure(CONFIGURATION), restart(), Budget(), 0, "a").action is Action.FAIL


@pytest.mark.parametrize(
    ("rule", "found"),
    [
        ({"onExitCodes": [3, 64]}, failure(CONFIGURATION, exit_code=64)),
        ({"onReason": "HeadLost"}, failure(INFRASTRUCTURE, "HeadLost")),
        ({"onLogPattern": "link down"}, failure(rule="mine")),
    ],
)
@pytest.mark.parametrize(
    ("action", "expected", "exclude"),
    [
        ("Fail", Action.FAIL, False),
        ("Stop", Action.STOP, False),
        ("RestartWithoutCounting", None, False),
        ("ExcludeNodeAndRestart", None, True),
    ],
)
def test_a_rule_comes_before_the_table(
    rule: dict[str, Any], found: Failure, action: str, expected: Action | None, exclude: bool
) -> None:
    rules = [{"name": "other", "onReason": "Nothing", "action": "Fail"}, {"name": "mine", "action": action, **rule}]
    verdict = judge(found, restart(rules=rules, scope="Cluster"), Budget(), 0, "a")
    assert verdict.action is (expected or Action.RESTART_CLUSTER)
    assert verdict.exclude is exclude
    assert verdict.why.startswith(f"restart rule mine: {action}")


@pytest.mark.parametrize(("node", "said"), [("n1", ""), (None, ", but the node to exclude is not known")])
def test_a_rule_that_excludes_a_node_says_where_none_is_known(node: str | None, said: str) -> None:
    rules = [{"name": "mine", "onReason": "RunFailed", "action": "ExcludeNodeAndRestart"}]
    verdict = judge(failure(node=node), restart(rules=rules), Budget(), 0, "a")
    assert verdict.why == f"restart rule mine: ExcludeNodeAndRestart{said}"


def test_a_rule_that_counts_none_is_bounded_all_the_same() -> None:
    rules = [{"name": "mine", "onReason": "RunFailed", "action": "RestartWithoutCounting"}]
    spent = Budget(user_failures=2, uncounted=UNCOUNTED_MAX - 1)
    last = judge(failure(), restart(rules=rules), spent, 0, "a")
    assert (last.action, last.budget.user_failures) == (Action.RESTART_CLUSTER, 2)
    verdict = judge(failure(), restart(rules=rules), last.budget, 0, "a")
    assert verdict.why == f"restarts by rule mine, which are not counted, {UNCOUNTED_MAX} used up"


def test_the_wait_doubles_up_to_a_bound_and_differs_from_job_to_job() -> None:
    def wait(failures: int, seed: str = "a", base: int = 30) -> float:
        spent = Budget(infrastructure_failures=failures)
        limit = restart(maxInfrastructureRestarts=100, backoffSeconds=base)
        return judge(failure(INFRASTRUCTURE), limit, spent, 0, seed).wait_seconds

    waits = [wait(failures) for failures in range(7)]
    for got, expected in zip(waits, (30, 60, 120, 240, 480, 600, 600), strict=True):
        assert expected <= got <= expected * (1 + BACKOFF_JITTER)
    assert wait(0) == wait(0) != wait(0, seed="b")
    assert wait(50) <= BACKOFF_SECONDS_MAX * (1 + BACKOFF_JITTER)
    assert wait(0, base=3600) >= 3600


def attempt(number: int, resumed: int, last: int, *, reported: bool = True) -> Attempt:
    return Attempt.model_validate(
        {
            "startTime": "2026-01-01T12:01:00Z" if reported else None,
            "number": number,
            "clusterName": "sums-1",
            "submissionId": f"sums-1-{number}",
            "submittedTime": "2026-01-01T12:00:00Z",
            "resumedFromStep": resumed,
            "lastStep": last,
        }
    )


@pytest.mark.parametrize(
    ("ended", "before", "last_step", "cause"),
    [
        (failure(), attempt(1, 0, 6), 5, INFRASTRUCTURE),
        (failure(reason="DriverFailed"), attempt(1, 0, 6), 5, INFRASTRUCTURE),
        (failure(), attempt(1, 0, 6), 6, USER),
        (failure(), attempt(1, 5, 5), 5, USER),
        (failure(), attempt(1, 0, 6, reported=False), 5, USER),
        (failure(), None, 5, USER),
        (failure(reason="OutOfMemory"), attempt(1, 0, 6), 5, USER),
        (failure(CONFIGURATION), attempt(1, 0, 6), 5, CONFIGURATION),
    ],
    ids=[
        "at its start",
        "by Ray's word",
        "later",
        "again",
        "again in the load",
        "the first attempt",
        "explained",
        "refused",
    ],
)
def test_a_start_after_a_run_that_had_trained_has_the_benefit_of_the_doubt_once(
    ended: Failure, before: Attempt | None, last_step: int, cause: FailureCause
) -> None:
    attempts = [] if before is None else [before]
    assert with_doubt(ended, [*attempts, attempt(2, 5, 0)], last_step).cause is cause


def test_an_attempt_without_a_reported_step_does_not_count_those_of_the_one_before() -> None:
    assert with_doubt(failure(), [attempt(1, 0, 6), attempt(2, 0, 0, reported=False)], 6).cause is INFRASTRUCTURE


def ended_by(number: int, reason: str, outcome: str, cause: FailureCause | None = None) -> Attempt:
    """Return an attempt that completed no step."""
    made = attempt(number, 5, 0, reported=False)
    return made.model_copy(update={"reason": reason, "outcome": AttemptOutcome(outcome), "cause": cause})


@pytest.mark.parametrize(
    "between",
    [
        ended_by(2, "StartDeadlineExceeded", "Lost", INFRASTRUCTURE),
        ended_by(2, "Preempted", "Preempted", PREEMPTION),
        ended_by(2, "Suspended", "Stopped"),
        ended_by(2, "HeadLost", "Lost", INFRASTRUCTURE),
    ],
    ids=lambda attempt: attempt.reason,
)
def test_attempts_whose_end_is_explained_do_not_take_the_benefit_of_the_doubt(between: Attempt) -> None:
    assert with_doubt(failure(), [attempt(1, 0, 6), between, attempt(3, 5, 0)], 5).cause is INFRASTRUCTURE
    doubted = ended_by(2, "RunFailed", "Failed", INFRASTRUCTURE)
    assert with_doubt(failure(), [attempt(1, 0, 6), doubted, between, attempt(4, 5, 0)], 5).cause is USER, "once"
