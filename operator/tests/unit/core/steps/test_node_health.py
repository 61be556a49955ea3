"""A run on failing hardware, decision by decision; the scenarios of tests/property cover whole lives."""

from __future__ import annotations

from typing import Any

import pytest
from builders import (
    NOW,
    Json,
    answer,
    apart,
    at,
    config,
    decide,
    job,
    merged,
    reasons,
    running,
    saving,
    seen,
    small_spec,
    snapshot,
    status_after,
    status_begun,
    status_submitted,
    wrote,
)

from rljob.api.status import State
from rljob.core import times
from rljob.core.observed import UNSEEN, Observed
from rljob.core.plan import Plan, StopRun
from rljob.core.reasons import Reason
from rljob.core.scheduling.discovery import NodeFacts, Nodes
from rljob.core.scheduling.node_faults import DeviceFault, Held, NodeLook
from rljob.core.transitions.conclusions import EXCLUDED_SECONDS
from rljob_runtime.contract import Outcome, Phase

NPU = "huawei.com/Ascend910"
DEVICES = frozenset({"Ascend910-0", "Ascend910-1"})
HELD = (Held("n0", works=False), Held("n1", works=True, devices=DEVICES))
WELL = NodeLook("n0")
SAVES = {"checkpoint": {"path": "/data/saves", "everySteps": 5}, "stop": {"graceSeconds": 100}}
SPEC = small_spec(saving({**SAVES, "restart": {"maxInfrastructureRestarts": 2, "backoffSeconds": 10}}))
UNHEALTHY = "node n1: DeviceUnhealthy (1 of 2 devices)"


def look(*faults: str, offered: int = 2, name: str = "n1", **fields: Any) -> NodeLook:  # noqa: ANN401 - of NodeLook
    told = tuple(DeviceFault("Ascend910-0", fault) for fault in faults) or None
    return NodeLook(name, offered={NPU: offered}, capacity={NPU: 2}, faults=told, **fields)


def ruled(fault: str, action: str) -> Json:
    return merged(SPEC, {"restart": {"rules": [{"name": "mine", "onFault": fault, "action": action}]}})


class Run:
    """A run, and the observations of its nodes."""

    def __init__(self, spec: Json = SPEC) -> None:
        self.spec = spec
        self.status = status_submitted()
        self.seconds = 0.0

    def see(self, *looks: NodeLook, **facts: Any) -> Plan:  # noqa: ANN401 - fields of Observed
        """Decide, and apply the status."""
        known = {"progress": answer({"observed_time": at(self.seconds).timestamp()}), "held": HELD} | facts
        world = running(
            job=job(self.spec, self.status),
            snapshot=snapshot(self.spec),
            looks={each.name: each for each in (WELL, *looks)},
            **known,
        )
        plan = decide(world, self.seconds)
        if plan.status is not None:
            self.status = status_after(plan)
        return plan

    def until_reported(self, *looks: NodeLook, **facts: Any) -> Plan:  # noqa: ANN401 - fields of Observed
        """Apply the first write, and return what follows."""
        self.see(**facts)
        return self.see(*looks, **facts)


def degraded(plan: Plan) -> tuple[str, str]:
    return reasons(plan)["Degraded"]


def test_a_run_on_healthy_nodes_has_no_condition_degraded() -> None:
    run = Run()
    assert "Degraded" not in reasons(run.see(look()))
    assert run.see(look()).empty


@pytest.mark.parametrize(
    ("seen_as", "reason"),
    [
        (look("SubHealthFault"), "SubHealthy"),
        (look("PreSeparateNPU"), "SubHealthy"),
        (look(ready=False), "NodeNotReady"),
        (look(cordoned=True), "NodeCordoned"),
        (look(offered=0), "DevicesNotOffered"),
    ],
)
def test_a_tolerable_fault_is_reported_once_and_nothing_else_is_done(seen_as: NodeLook, reason: str) -> None:
    run = Run()
    plan = run.until_reported(seen_as)
    assert degraded(plan) == ("True", reason)
    assert [event.reason for event in plan.events] == [reason]
    for _ in range(3):
        run.seconds += 3600
        assert run.see(seen_as).empty
    plan = run.see(look())
    assert degraded(plan) == ("False", "Healthy")
    assert [event.reason for event in plan.events] == ["Healthy"]
    assert run.see(look()).empty


def test_another_message_is_no_news_but_another_reason_is() -> None:
    run = Run()
    run.until_reported(look("SubHealthFault"))
    plan = run.see(look("PreSeparateNPU"))
    assert (plan.status is not None, plan.events) == (True, ())
    run.seconds = 30
    plan = run.see(look("RestartRequest"))
    assert degraded(plan) == ("True", "DeviceFault")
    assert [event.reason for event in plan.events] == ["DeviceFault"]
    (told,) = [entry for entry in wrote(plan).conditions if entry.type == "Degraded"]
    assert told.last_transition_time == times.to_text(at(30)), "its duration is counted from here"


def test_what_was_not_seen_changes_nothing() -> None:
    run = Run()
    assert run.until_reported().empty
    run.see(look("SubHealthFault"))
    assert run.see(held=UNSEEN).empty
    assert run.see().empty, "a node that was not read may be unchanged"
    assert run.see(held=()).status is not None


def test_a_device_at_fault_lets_the_run_save_and_leave() -> None:
    run = Run()
    assert degraded(run.until_reported(look("SeparateNPU"))) == ("True", "DeviceFault")
    plan = run.see(look("SeparateNPU"))
    stop = wrote(plan).stop
    assert stop is not None
    assert (stop.reason, stop.mode, stop.fault, stop.nodes) == ("DeviceFault", "AfterStep", "SeparateNPU", ["n1"])
    assert stop.deadline == times.to_text(at(100))
    assert wrote(plan).message == ("Ascend910-0 of node n1: SeparateNPU; the run may save until 2026-01-01T12:01:40Z")
    assert isinstance(run.see(look("SeparateNPU")).effects[0], StopRun)


@pytest.mark.parametrize("seen_as", [look(offered=1), look("RestartBusiness", offered=1)])
def test_what_may_pass_must_last_a_minute(seen_as: NodeLook) -> None:
    run = Run()
    run.until_reported(seen_as)
    run.seconds = 59
    assert run.see(seen_as).empty
    run.seconds = 60
    assert wrote(run.see(seen_as)).stop is not None


def leave(run: Run, *looks: NodeLook, code: int = 66) -> Plan:
    """Report the fault, request the stop, and end the run."""
    run.until_reported(*looks)
    run.seconds = 60
    run.see(*looks)
    end = Outcome(code, "Stopped", "saved step 3", last_step=3)
    return run.see(*looks, progress=answer({"phase": Phase.ENDED, "outcome": end}))


@pytest.mark.parametrize("code", [66, 1])
def test_however_it_ends_the_hardware_is_to_blame_and_the_node_is_avoided(code: int) -> None:
    new = wrote(leave(Run(), look(offered=1), code=code))
    (attempt,) = new.attempts
    assert (attempt.reason, attempt.cause, attempt.node) == ("DeviceFault", "Infrastructure", "n1")
    assert attempt.message == f"{UNHEALTHY}; saved step 3 (1 of 2 by restart.maxInfrastructureRestarts)"
    (avoided,) = new.excluded_nodes
    assert (avoided.name, avoided.reason) == ("n1", "DeviceFault")
    assert avoided.message is not None
    assert avoided.message.startswith(UNHEALTHY)
    assert (new.budget.infrastructure_failures, new.budget.user_failures) == (1, 0)
    assert {entry.type: entry.status for entry in new.conditions}["Degraded"] == "False"


def test_a_run_that_succeeds_meanwhile_has_succeeded() -> None:
    assert wrote(leave(Run(), look(offered=1), code=0)).state is State.SUCCEEDED


def test_a_head_that_does_not_answer_in_time_is_not_waited_for() -> None:
    run = Run()
    run.until_reported(look("SeparateNPU"))
    run.see(look("SeparateNPU"))
    run.seconds = 100
    (attempt,) = wrote(run.see(look("SeparateNPU"), progress=UNSEEN)).attempts
    assert attempt.reason == "DeviceFault"


def test_a_fault_that_a_restart_clears_leaves_the_node_in_use() -> None:
    new = wrote(leave(Run(), look("RestartBusiness", offered=1)))
    assert (new.excluded_nodes, new.attempts[0].node) == ([], "n1")


def test_with_a_new_save_a_run_is_taken_off_a_bad_device_at_once() -> None:
    run = Run(merged(SPEC, {"restart": {"maxInfrastructureRestarts": 1}}))
    run.status["budget"] = {"infrastructureFailures": 1}
    run.until_reported(look("SeparateNPU"))
    run.seconds = 60
    told = run.see(
        look("SeparateNPU"), progress=answer({"step": 6, "checkpoint_step": 5, "observed_time": at(60).timestamp()})
    )
    assert wrote(told).checkpoint is not None
    assert not told.rests, "used-up restarts count again"
    run.see(look("SeparateNPU"))
    stop = wrote(run.see(look("SeparateNPU"))).stop
    assert stop is not None
    assert stop.reason == "DeviceFault"


@pytest.mark.parametrize("limit", [0, 1])
def test_a_run_without_another_attempt_goes_on_as_long_as_it_can(limit: int) -> None:
    run = Run(merged(SPEC, {"restart": {"maxInfrastructureRestarts": limit, "maxRestarts": limit}}))
    run.status["budget"] = {"infrastructureFailures": limit}
    plan = run.until_reported(look("SeparateNPU"))
    (told,) = [entry for entry in wrote(plan).conditions if entry.type == "Degraded"]
    word = "1 used up" if limit else "is 0"
    assert told.message.endswith(f"the run continues as long as it can, since restart.maxInfrastructureRestarts {word}")
    run.seconds = 3600
    assert run.see(look("SeparateNPU")).empty


@pytest.mark.parametrize(("action", "state"), [("Fail", State.FAILED), ("Stop", State.STOPPED)])
def test_a_rule_ends_the_job(action: str, state: State) -> None:
    assert wrote(leave(Run(ruled("SubHealthFault", action)), look("SubHealthFault"))).state is state


@pytest.mark.parametrize(
    ("action", "counted"), [("Restart", 1), ("ExcludeNodeAndRestart", 1), ("RestartWithoutCounting", 0)]
)
def test_a_rule_restarts_for_what_a_run_could_live_with(action: str, counted: int) -> None:
    new = wrote(leave(Run(ruled("SubHealthFault", action)), look("SubHealthFault")))
    assert new.budget.infrastructure_failures == counted
    assert [node.name for node in new.excluded_nodes] == ["n1"], "or the same fault would end the next attempt"
    assert f"restart rule mine: {action}" in (new.attempts[0].message or "")


def test_a_rule_comes_before_what_is_worse() -> None:
    run = Run(ruled("NodeCordoned", "Stop"))
    seen_as = look("SeparateNPU", cordoned=True)
    assert wrote(leave(run, seen_as)).state is State.STOPPED


@pytest.mark.parametrize(("code", "reason"), [(1, "RunFailed"), (65, "RayUnavailable"), (65, "NodeLost")])
def test_an_end_that_nothing_explains_is_blamed_on_the_hardware(code: int, reason: str) -> None:
    run = Run()
    run.see()
    failed = answer({"phase": Phase.ENDED, "outcome": Outcome(code, reason, "RayActorError", last_step=3)})
    new = wrote(run.see(look("PreSeparateNPU"), progress=failed))
    assert (new.attempts[0].reason, new.attempts[0].cause) == ("SubHealthy", "Infrastructure")
    assert new.attempts[0].message == (
        "Ascend910-0 of node n1: PreSeparateNPU; RayActorError (1 of 2 by restart.maxInfrastructureRestarts)"
    )
    assert [(node.name, node.reason) for node in new.excluded_nodes] == [("n1", "SubHealthy")]


@pytest.mark.parametrize(
    ("seen_as", "code", "reason"),
    [
        (look("SubHealthFault"), 1, "RunFailed"),
        (look("PreSeparateNPU"), 1, "OutOfMemory"),
        (look("PreSeparateNPU"), 64, "PathMissing"),
        (look("PreSeparateNPU"), 65, "SharedMemoryTooSmall"),
        (look("PreSeparateNPU"), 66, "Stopped"),
    ],
)
def test_an_end_that_something_else_explains_is_not(seen_as: NodeLook, code: int, reason: str) -> None:
    run = Run()
    run.see()
    failed = answer({"phase": Phase.ENDED, "outcome": Outcome(code, reason, "why", last_step=3)})
    assert wrote(run.see(seen_as, progress=failed)).attempts[0].reason == reason


# Before the next generation.

BEGUN = status_begun(SPEC)


def facts(name: str, offered: int = 2, **fields: Any) -> NodeFacts:  # noqa: ANN401 - of NodeFacts
    return NodeFacts({}, {NPU: offered}, name=name, capacity={NPU: 2}, **fields)


def waiting(
    nodes: Nodes | None, *looks: NodeLook, status: Json | None = None, spec: Json = SPEC, **avoided: str
) -> Observed:
    """Return the observation of a job whose first cluster is gone, and that avoids nodes for these reasons."""
    until = times.to_text(at(EXCLUDED_SECONDS))
    listed = [{"name": name, "reason": reason, "until": until, "message": "why"} for name, reason in avoided.items()]
    ended = merged(BEGUN, {"intent": {"ended": True}, "excludedNodes": listed})
    found = {"nodes": UNSEEN if nodes is None else nodes, "looks": {each.name: each for each in looks}}
    return seen(job(spec, status or ended), snapshot=snapshot(spec), config=config(spec), **found)


ONE, TWO = Nodes((facts("n1"),)), Nodes((facts("n1"), facts("n2")))


def test_a_job_waits_where_too_few_nodes_are_left_and_says_which_are_not() -> None:
    plan = decide(waiting(ONE, look(offered=1), n1="DeviceFault"))
    new = wrote(plan)
    assert (new.state, new.reason) == (State.PENDING, Reason.WAITING_FOR_NODES)
    assert new.message == (
        "0 of 1 nodes are usable and the job needs 1: n1 is avoided until 2026-01-02T12:00:00Z for DeviceFault "
        "(why), or until the fault is gone"
    )
    assert reasons(plan)["ClusterReady"] == ("False", "WaitingForNodes")
    assert [event.reason for event in plan.events] == ["WaitingForNodes"]
    again = decide(waiting(ONE, look(offered=1), status=status_after(plan)), 30)
    assert (again.empty, again.requeue_after_seconds) == (True, 15.0)


def test_what_the_nodes_are_is_not_known_for_a_while() -> None:
    told = status_after(decide(waiting(ONE, n1="DeviceFault")))
    assert decide(waiting(None, status=told)) == Plan(requeue_after_seconds=15.0)
    assert wrote(decide(waiting(None, n1="DeviceFault"))).intent != BEGUN["intent"]


@pytest.mark.parametrize("nodes", [TWO, Nodes(()), Nodes((facts("n1"),), complete=False)])
def test_it_goes_on_where_there_is_room_or_nothing_is_known(nodes: Nodes) -> None:
    assert wrote(decide(waiting(nodes, n1="DeviceFault"))).reason == Reason.CLUSTER_STARTING


def test_a_cluster_with_too_few_nodes_altogether_may_be_given_more() -> None:
    small = Nodes((NodeFacts({}, {NPU: 1}, name="n1", capacity={NPU: 1}),))
    assert wrote(decide(waiting(small, n1="DeviceFault"))).reason != Reason.WAITING_FOR_NODES


@pytest.mark.parametrize("node", [facts("n1", offered=1), facts("n1", takes_pods=False)])
def test_nodes_that_nobody_avoids_may_be_unfit_too(node: NodeFacts) -> None:
    new = wrote(decide(waiting(Nodes((node,)))))
    assert new.message == (
        "0 of 1 nodes are usable and the job needs 1: n1 is cordoned, not ready, or offers too few devices"
    )


def test_a_job_of_two_groups_waits_for_the_nodes_of_both() -> None:
    template = {"template": SPEC["workerGroups"][0]["template"]}
    pair = merged(SPEC, apart(template, template))
    avoided = {"name": "n1", "reason": "DeviceFault", "until": times.to_text(at(EXCLUDED_SECONDS))}
    begun = merged(status_begun(pair), {"intent": {"ended": True}, "excludedNodes": [avoided]})
    new = wrote(decide(waiting(TWO, look(offered=1), spec=pair, status=begun)))
    assert (new.message or "").startswith(
        "1 of 2 nodes are usable and the job needs 1 for group train and 1 for group generate, of which 1 find "
        "devices: n1 is avoided until"
    )
    three = Nodes((*TWO.items, facts("n3")))
    plan = decide(waiting(three, look(offered=1), spec=pair, status=begun))
    assert wrote(plan).reason == Reason.CLUSTER_STARTING


def test_a_worker_with_a_whole_node_has_every_device_of_it_at_fault() -> None:
    pair, unnamed = merged(SPEC, apart({"devicesPerNode": 2}, {"devicesPerNode": 1})), look("RestartNPU")
    held = (Held("n0", works=False, group="headgroup"), Held("n1", works=True, group="train"))
    assert degraded(Run(pair).until_reported(unnamed, held=held))[0] == "True"
    other = (held[0], Held("n1", works=True, group="generate"))
    assert "Degraded" not in reasons(Run(pair).see(unnamed, held=other)), "it may hold the healthy device"


def test_a_message_names_some_nodes() -> None:
    many = Nodes(tuple(facts(f"n{number}", offered=0) for number in range(9)))
    assert (wrote(decide(waiting(many))).message or "").endswith(" and 5 more")


@pytest.mark.parametrize(
    ("entry", "seconds", "words"),
    [
        ({"reason": "HeadLost"}, 300, "n1 is not used until 2026-01-01T12:05:00Z for HeadLost"),
        (
            {"reason": "DiskFull", "message": "1 GB left"},
            1800,
            "n1 is not used until 2026-01-01T12:30:00Z for DiskFull (1 GB left)",
        ),
    ],
    ids=["mere blame", "a check"],
)
def test_blame_is_given_up_after_a_while_where_too_few_nodes_are_left(entry: Json, seconds: int, words: str) -> None:
    listed = [{"name": "n1", "until": times.to_text(at(EXCLUDED_SECONDS))} | entry]
    status = merged(BEGUN, {"intent": {"ended": True}, "excludedNodes": listed})
    told = wrote(decide(waiting(ONE, status=status), seconds - 1))
    assert (told.reason, (told.message or "").endswith(words)) == (Reason.WAITING_FOR_NODES, True)
    plan = decide(waiting(ONE, status=status), seconds)
    assert wrote(plan).excluded_nodes == []
    assert [event.message for event in plan.events] == ["used again, since too few others are left: n1"]
    assert wrote(decide(waiting(TWO, status=status), seconds)).excluded_nodes != []


def test_a_job_that_restarts_by_itself_shows_it() -> None:
    status = merged(BEGUN, {"intent": {"ended": True}, "nextAttemptTime": times.to_text(NOW)})
    assert wrote(decide(waiting(Nodes((facts("n1", offered=0),)), status=status))).state is State.RESTARTING


def test_a_node_whose_fault_is_gone_is_used_again_at_once() -> None:
    plan = decide(waiting(ONE, look(), n1="DeviceFault"))
    assert wrote(plan).excluded_nodes == []
    assert [(event.reason, event.message) for event in plan.events] == [("Healthy", "used again: n1")]
    assert wrote(decide(waiting(ONE, status=status_after(plan)))).reason != Reason.WAITING_FOR_NODES


@pytest.mark.parametrize(
    ("reason", "looks"),
    [
        ("DeviceFault", ()),
        ("DeviceFault", (look(offered=1),)),
        ("DeviceFault", (look("PreSeparateNPU"),)),
        ("NodeNotReady", (look(ready=False),)),
        ("HeadLost", (look(),)),
    ],
)
def test_a_node_that_was_not_seen_well_stays_avoided(reason: str, looks: tuple[NodeLook, ...]) -> None:
    new = wrote(decide(waiting(ONE, *looks, n1=reason)))
    assert [node.name for node in new.excluded_nodes] == ["n1"]
    assert new.reason == Reason.WAITING_FOR_NODES


def test_a_node_with_a_fault_that_a_rule_ends_runs_for_stays_avoided_until_it_is_gone() -> None:
    spec = ruled("SubHealthFault", "ExcludeNodeAndRestart")
    sick = decide(waiting(TWO, look("SubHealthFault"), spec=spec, n1="DeviceFault"))
    assert [node.name for node in wrote(sick).excluded_nodes] == ["n1"]
    assert wrote(decide(waiting(TWO, look(), spec=spec, n1="DeviceFault"))).excluded_nodes == []
    assert wrote(decide(waiting(TWO, look("SubHealthFault"), n1="DeviceFault"))).excluded_nodes == [], "no rule"
    spec = ruled("NodeCordoned", "ExcludeNodeAndRestart")
    cordoned = decide(waiting(TWO, look(cordoned=True), spec=spec, n1="DeviceFault"))
    assert wrote(cordoned).excluded_nodes == [], "the scheduler avoids it anyway"


def test_a_cordoned_node_is_well_and_the_scheduler_keeps_off_by_itself() -> None:
    assert wrote(decide(waiting(TWO, look(cordoned=True), n1="SubHealthy"))).excluded_nodes == []
