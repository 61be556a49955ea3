"""A cluster with only some of its nodes releases them, and its job waits at no cost."""

from dataclasses import replace
from datetime import timedelta

import pytest
from builders import (
    NOW,
    Json,
    apart,
    at,
    cluster,
    decide,
    job,
    merged,
    pod,
    reasons,
    seen,
    small_spec,
    snapshot,
    status_recorded,
    wrote,
)

from rljob.api.status import Budget, Counters, State
from rljob.core import times
from rljob.core.observed import UNSEEN, Unseen
from rljob.core.plan import DeleteObject, Plan
from rljob.core.scheduling.discovery import NodeFacts, Nodes
from rljob.core.scheduling.held_nodes import backoff_seconds, bound_seconds
from rljob.core.steps.partial_allocation import LOOK_SECONDS_MAX, TRUSTED_SECONDS

NPU = "huawei.com/Ascend910"
BOUND = bound_seconds(60, "sums-0a1b2-1")
LACK = f"0/2 nodes are available: 2 Insufficient {NPU}."
HAVE = {"huawei.com/Ascend910": 2}
URGENT = small_spec({"scheduling": {"priorityClassName": "high"}})
ONE = Nodes((NodeFacts({}, HAVE, "n1", HAVE), NodeFacts({}, {}, "n0")))
"""The job needs one such node."""


def scheduled(name: str, node: str | None, message: str = "") -> Json:
    told = {"type": "PodScheduled", "status": "True" if node else "False", "message": message}
    told["lastTransitionTime"] = times.to_text(NOW)
    made = pod(name, name, ready=False, conditions=[told])
    return made | {"spec": {"nodeName": node} if node else {}}


HALF = (scheduled("head", "n0"), scheduled("worker", None, LACK))


def waiting(seconds: float, pods: tuple[Json, ...] | Unseen = HALF, nodes: Nodes | Unseen = ONE, **facts: Json) -> Plan:
    world = seen(
        facts.get("job") or job(status=status_recorded()),
        clusters=(facts.get("cluster") or cluster(),),
        pods=pods,
        nodes=nodes,
    )
    return decide(world, seconds)


def between(seconds: float = 0.0, status: Json | None = None, spec: Json | None = None, **facts: object) -> Plan:
    """Decide when everything of the first generation is gone, that many seconds after the next one may start."""
    gone = status or torn_down()
    begin = (times.from_text(str(gone["nextAttemptTime"])) - NOW).total_seconds() if "nextAttemptTime" in gone else 0.0
    known: dict[str, object] = {"nodes": ONE, "taken": {"cpu": 1}} | facts
    return decide(seen(job(spec, gone), **known), begin + seconds)


def released() -> Json:
    status = waiting(BOUND + 1).status
    assert status is not None
    return dict(status)


def torn_down() -> Json:
    status = decide(seen(job(status=released()), live_cluster=None, pods=()), BOUND + 9).status
    assert status is not None
    return dict(status)


def test_what_holds_some_of_its_nodes_for_too_long_gives_all_back_and_says_why() -> None:
    assert reasons(waiting(BOUND - 1))["ClusterReady"] == ("False", "PodUnschedulable")
    plan = waiting(BOUND + 1)
    status = wrote(plan)
    assert (status.state, status.reason) == (State.PENDING, "WaitingForDevices")
    assert (status.message or "").startswith(
        "1 of 2 pods has a node, 1 waits for devices: pod worker: none of 2 nodes can run it: 2 with too little "
        f"{NPU} free; released at 2026-01-01T12:"
    )
    assert status.stop is not None
    assert status.next_attempt_time is not None
    assert [note.type for note in plan.events] == ["Warning"]


def test_a_cluster_that_was_whole_for_days_has_waited_for_nothing() -> None:
    ready = {"type": "ClusterReady", "status": "True", "reason": "AllPodsReady"}
    whole = status_recorded()
    others = [entry for entry in whole["conditions"] if entry["type"] != "ClusterReady"]
    whole["conditions"] = [*others, ready | {"lastTransitionTime": times.to_text(at(-86400))}]
    plan = waiting(BOUND + 1, job=job(status=whole))
    pause = times.from_text(str(wrote(plan).next_attempt_time)) - at(BOUND + 1)
    assert pause.total_seconds() == pytest.approx(backoff_seconds(0, 60, "sums-0a1b2-1"), abs=1)


def test_it_is_no_attempt_no_restart_and_no_failure() -> None:
    for told in (released(), torn_down()):
        status = wrote(Plan(status=told))
        assert (status.attempts, status.restarts) == ([], 0)
        assert (status.counters, status.budget) == (Counters(), Budget())


def test_the_order_is_written_before_the_cluster_is_deleted() -> None:
    plan = decide(seen(job(status=released()), clusters=(cluster(),), pods=HALF), BOUND + 2)
    assert [type(effect) for effect in plan.effects] == [DeleteObject]
    rest = decide(seen(job(status=released()), live_cluster=None, pods=HALF[:1]), BOUND + 3)
    assert rest.empty


def test_when_all_is_gone_the_job_waits_with_its_reason() -> None:
    status = wrote(Plan(status=torn_down()))
    assert status.intent is not None
    assert status.intent.ended
    assert (status.state, status.reason) == (State.PENDING, "WaitingForDevices")
    assert reasons(Plan(status=torn_down()))["ClusterReady"] == ("False", "WaitingForDevices")
    early = between(-1)
    assert early.empty
    assert early.requeue_after_seconds == 1.0


@pytest.mark.parametrize(
    ("pods", "nodes"),
    [
        (UNSEEN, ONE),
        ((HALF[0], scheduled("worker", "n1")), ONE),
        ((HALF[0], scheduled("worker", None, "0/2 nodes are available: 2 Insufficient cpu.")), ONE),
        (HALF, Nodes((NodeFacts({}, {}, "n0"),))),
    ],
    ids=["not looked at", "all placed", "lacks something else", "no such node at all"],
)
def test_what_no_other_job_stands_in_the_way_of_ends_at_the_start_deadline(
    pods: tuple[Json, ...] | Unseen, nodes: Nodes
) -> None:
    assert waiting(1799, pods, nodes).effects == ()
    assert wrote(waiting(1800, pods, nodes)).reason == "StartDeadlineExceeded"


def test_what_has_no_node_at_all_is_in_nobodys_way_until_its_deadline() -> None:
    none = (scheduled("head", None, LACK), HALF[1])
    assert wrote(waiting(1799, none)).state is State.STARTING
    assert wrote(waiting(1800, none)).reason == "WaitingForDevices"


def test_where_nodes_cannot_be_read_it_yields_and_the_whole_wait_has_the_start_deadline() -> None:
    assert wrote(waiting(BOUND + 1, nodes=UNSEEN)).reason == "WaitingForDevices"
    late = waiting(1800, nodes=Nodes((), complete=False))
    assert wrote(late).reason == "StartDeadlineExceeded"
    assert "whether the cluster has such nodes is not known" in (wrote(late).message or "")


def test_nodes_that_could_not_be_read_just_now_end_no_wait() -> None:
    assert wrote(waiting(1800, nodes=UNSEEN)).reason == "WaitingForDevices"


def test_a_wait_begins_anew_after_a_suspension_and_goes_on_from_try_to_try() -> None:
    tried = wrote(between(taken={"cpu": 0}))
    resumed = wrote(between(259_200, status=merged(torn_down(), {"nextAttemptTime": None})))
    since = [
        next(entry.last_transition_time for entry in status.conditions if entry.type == "ClusterReady")
        for status in (tried, resumed)
    ]
    assert times.from_text(since[0]) == NOW
    assert times.from_text(since[1]) == NOW + timedelta(seconds=259_200)


def test_pods_whose_places_are_being_cleared_keep_what_they_have_until_the_deadline() -> None:
    nominated = scheduled("worker", None, LACK)
    nominated["status"]["nominatedNodeName"] = "n1"
    assert wrote(waiting(BOUND + 1, (HALF[0], nominated))).reason == "PodUnschedulable"
    assert wrote(waiting(1800, (HALF[0], nominated))).reason == "StartDeadlineExceeded"


def test_what_its_own_workers_have_is_not_others() -> None:
    own = scheduled("w1", "n1")
    own["metadata"]["labels"] = {"ray.io/node-type": "worker"}
    told = f"0/2 nodes are available: 1 Insufficient {NPU}, 1 node(s) had untolerated taint(s)."
    tainted = scheduled("w2", None, told)
    nodes = Nodes((NodeFacts({}, HAVE, "n1", HAVE), NodeFacts({}, HAVE, "n2", HAVE)))
    assert wrote(waiting(1800, (HALF[0], own, tainted), nodes)).reason == "StartDeadlineExceeded"


def test_the_workers_of_both_groups_need_devices() -> None:
    pair = small_spec(apart())

    def decided(*nodes: NodeFacts) -> str | None:
        world = seen(job(pair, status_recorded()), clusters=(cluster(),), pods=HALF, snapshot=snapshot(pair))
        return wrote(decide(replace(world, nodes=Nodes(nodes)), 1800)).reason

    one, two = NodeFacts({}, HAVE, "n1", HAVE), NodeFacts({}, HAVE, "n2", HAVE)
    assert decided(one) == "StartDeadlineExceeded", "nobody will free what the cluster does not have"
    assert decided(one, two) == "WaitingForDevices"
    plan = between(spec=pair, snapshot=snapshot(pair), nodes=Nodes((one, two)), taken={"cpu": 1})
    assert (wrote(plan).message or "").startswith("the job needs 4 devices of class cpu; of 4, the clusters of other")


def test_of_a_domain_that_is_required_nobody_knows_how_much_it_holds() -> None:
    bound = small_spec({"scheduling": {"topology": {"level": "example.com/rack", "mode": "Required"}}})
    world = seen(job(bound, status_recorded()), clusters=(cluster(),), pods=HALF, nodes=ONE, snapshot=snapshot(bound))
    assert wrote(decide(world, BOUND + 1)).reason == "WaitingForDevices"
    assert wrote(decide(world, 1800)).reason == "StartDeadlineExceeded"


def test_a_cluster_that_a_queue_starts_as_a_whole_holds_what_it_has() -> None:
    queued = cluster()
    queued["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] = "team"
    assert waiting(BOUND + 1, cluster=queued).effects == ()
    assert reasons(waiting(BOUND + 1, cluster=queued))["ClusterReady"] == ("False", "PodUnschedulable")
    status = status_recorded()
    status["resolved"]["decisions"] = [{"name": "scheduling.gang", "value": "Volcano", "reason": "set in the spec"}]
    assert reasons(waiting(BOUND + 1, job=job(status=status)))["ClusterReady"] == ("False", "PodUnschedulable")


def test_it_makes_nothing_while_others_have_the_devices() -> None:
    plan = between()
    assert wrote(plan).message == (
        "the job needs 2 devices of class cpu; of 2, the clusters of other jobs have 1; it holds nothing, and begins "
        "when enough are free"
    )
    assert reasons(plan)["ClusterReady"] == ("False", "WaitingForDevices")
    assert 15 <= (plan.requeue_after_seconds or 0) <= 2 * LOOK_SECONDS_MAX
    again = between(15, plan_status(plan))
    assert again.empty


def plan_status(plan: Plan) -> Json:
    assert plan.status is not None
    return dict(plan.status)


@pytest.mark.parametrize(
    ("seconds", "facts"),
    [
        (0, {"taken": {"cpu": 0, "atlas-a3": 16}}),
        (0, {"taken": UNSEEN}),
        (0, {"nodes": UNSEEN}),
        (0, {"nodes": Nodes((), complete=False)}),
        (0, {"spec": URGENT, "snapshot": snapshot(URGENT)}),
        (TRUSTED_SECONDS, {}),
    ],
    ids=["enough is free", "unknown clusters", "unknown nodes", "unreadable nodes", "may preempt", "after an hour"],
)
def test_it_tries_again_when_devices_are_free_or_nobody_knows(seconds: float, facts: Json) -> None:
    status = wrote(between(seconds, **facts))
    assert status.intent is not None
    assert (status.intent.cluster_generation, status.intent.ended) == (2, False)


def test_what_the_user_resumes_begins_at_once() -> None:
    gone = merged(torn_down(), {"nextAttemptTime": None})
    plan = between(status=gone)
    assert wrote(plan).reason == "ClusterStarting"
    assert [note.reason for note in plan.events] == ["Resumed"]


def test_a_job_that_is_suspended_while_it_waits_is_suspended() -> None:
    plan = between(spec=small_spec({"suspend": True}))
    assert wrote(plan).state is State.SUSPENDED
