"""Which scheduler starts all pods together, why, and what Volcano reports while it does not."""

from __future__ import annotations

import pytest
from builders import Json, merged, small_spec, typed

from rljob.core.observed import PodGroupApi
from rljob.core.scheduling.gang import asks_cluster, decide_gang, judge_group, unavailable
from rljob.core.validation.lifecycle import CHECKS
from rljob.render.podgroup import NEWEST_FIELDS, TOPOLOGY, Gang

A3: Json = {
    "accelerator": {"class": "atlas-a3-superpod"},
    "workerGroups": [{"name": "trainer", "nodes": 4, "devicesPerNode": 16}],
}
THERE = PodGroupApi(NEWEST_FIELDS)
OLD = PodGroupApi(frozenset({"minMember"}))
ABSENT = PodGroupApi(problem="the API server does not serve podgroups.scheduling.volcano.sh")


def decided(change: Json, api: PodGroupApi | None = THERE) -> tuple[Gang, str]:
    return decide_gang(typed(small_spec(change)), api)


def scheduling(change: Json, base: Json = A3) -> Json:
    return merged(base, {"scheduling": change})


@pytest.mark.parametrize(
    ("change", "api", "gang", "word"),
    [
        (A3, THERE, Gang.VOLCANO, "knows class atlas-a3-superpod as chip2-node16-sp"),
        (A3, ABSENT, Gang.NONE, "does not serve podgroups"),
        (A3, None, Gang.NONE, "no cluster was asked"),
        ({}, THERE, Gang.NONE, "class cpu has no policy"),
        (scheduling({"queueName": "team"}), THERE, Gang.KUEUE, "queue team starts the whole cluster"),
        (scheduling({"queueName": "team", "gang": "Kueue"}), THERE, Gang.KUEUE, "queue team"),
        (scheduling({"gang": "None"}), THERE, Gang.NONE, "set in the spec"),
        ({"scheduling": {"gang": "Volcano"}}, ABSENT, Gang.VOLCANO, "set in the spec"),
        (scheduling({"gang": "Volcano", "queueName": "team"}), THERE, Gang.VOLCANO, "set in the spec"),
        (scheduling({"topology": {"level": "2"}}), OLD, Gang.VOLCANO, "has no networkTopology"),
        (scheduling({"topology": {"level": "rack"}}), PodGroupApi(frozenset({TOPOLOGY})), Gang.VOLCANO, "number"),
        (
            {"scheduling": {"gang": "Volcano", "topology": {"nodesPerSuperPodBlock": 1}}},
            None,
            Gang.VOLCANO,
            "class cpu has no super-pods",
        ),
    ],
)
def test_what_the_cluster_runs_decides(change: Json, api: PodGroupApi | None, gang: Gang, word: str) -> None:
    found, reason = decided(change, api)
    assert (found, word in reason) == (gang, True), reason


def test_a_topology_that_can_be_had_is_no_matter_for_words() -> None:
    asked = scheduling({"gang": "Volcano", "topology": {"level": "2", "nodesPerSuperPodBlock": 2}})
    assert decided(asked) == (Gang.VOLCANO, "set in the spec")


@pytest.mark.parametrize(
    ("change", "asks"),
    [
        ({}, False),
        (A3, True),
        (scheduling({"queueName": "team"}), False),
        (scheduling({"gang": "None"}), False),
        ({"scheduling": {"gang": "Volcano"}}, True),
    ],
)
def test_a_job_that_volcano_cannot_concern_never_waits_for_news_of_it(change: Json, *, asks: bool) -> None:
    assert asks_cluster(typed(small_spec(change))) is asks


@pytest.mark.parametrize(
    ("topology", "api", "word"),
    [
        ({}, THERE, ""),
        ({}, ABSENT, "install Volcano, set it to None"),
        ({"level": "2", "mode": "Required"}, OLD, "Preferred"),
        ({"level": "2", "mode": "Preferred"}, OLD, ""),
        ({"level": "2", "mode": "Required"}, THERE, ""),
    ],
)
def test_an_unavailable_gang_scheduler_is_reported_with_the_field(topology: Json, api: PodGroupApi, word: str) -> None:
    found = unavailable(typed(small_spec(scheduling({"topology": topology}))), api)
    assert bool(found) == bool(word)
    assert word in found
    assert not found or found.startswith("spec.scheduling.gang is Volcano, but ")


def group_condition(reason: str, message: str, at: str = "2026-01-01T00:00:00Z", **change: str) -> Json:
    entry = {"type": "Unschedulable", "status": "True", "reason": reason, "message": message}
    return entry | {"lastTransitionTime": at} | change


def group(phase: str | None, *conditions: Json, running: int = 0, queue: str | None = None) -> Json:
    status = {"phase": phase, "conditions": list(conditions), "running": running}
    return {"metadata": {"name": "g"}, "spec": {"queue": queue} if queue else {}, "status": status}


def member(of: str | None = "g") -> Json:
    return {"metadata": {"name": "head", "annotations": {"scheduling.k8s.io/group-name": of} if of else None}}


SHORT = group_condition("NotEnoughResources", "9/9 tasks in gang unschedulable")


@pytest.mark.parametrize(
    ("found", "value", "reason", "message", "patient"),
    [
        (group("Inqueue", SHORT), "False", "NotEnoughResources", "queue default of Volcano: 9/9 tasks", True),
        (group("Pending", queue="team"), "False", "WaitingForQueue", "queue team of Volcano: the PodGroup is P", True),
        (
            group("Pending", group_condition("JobEnqueueFailed", "x")),
            "False",
            "JobEnqueueFailed",
            "queue default",
            True,
        ),
        (
            group("Pending", group_condition("NodePredicateFailed", "x")),
            "False",
            "NodePredicateFailed",
            "queue default",
            True,
        ),
        (
            group("Pending", group_condition("BatchOrderFailed", "x")),
            "False",
            "BatchOrderFailed",
            "queue default",
            True,
        ),
        (
            group("Pending", group_condition("JobValidateFailed", "npu num")),
            "False",
            "JobValidateFailed",
            "npu num",
            False,
        ),
        (group("Pending", group_condition("two words", "x")), "False", "WaitingForQueue", "x", True),
        (group("Inqueue", SHORT | {"status": "False"}), "False", "WaitingForQueue", "PodGroup is Inqueue", True),
        (
            group("Pending", group_condition("B", "late", "2026-01-02T00:00:00Z"), group_condition("A", "old")),
            "False",
            "B",
            "late",
            True,
        ),
        (group(None), "False", "GangUnavailable", "has not processed PodGroup g", False),
        (group("Running", SHORT), "True", "Admitted", "queue default of Volcano", True),
    ],
)
def test_volcanos_words_become_ours(found: Json, value: str, reason: str, message: str, *, patient: bool) -> None:
    for head in (None, member()):
        seen = judge_group(found, head)
        assert seen is not None
        assert (seen.value.value, seen.reason, seen.patient) == (value, reason, patient)
        assert message in seen.message


@pytest.mark.parametrize(
    "found",
    [
        group("Unknown", SHORT, running=3),
        group("Pending", SHORT, running=3),
        group("Inqueue", group_condition("NotEnoughTasks", "0/9 tasks")),
    ],
)
def test_pods_that_are_lost_or_not_yet_made_are_no_matter_of_a_queue(found: Json) -> None:
    assert judge_group(found, member()) is None


def test_pods_that_run_were_let_go_whatever_volcano_has_written_down_by_then() -> None:
    seen = judge_group(group("Inqueue", SHORT), member(), started=True)
    assert seen is not None
    assert (seen.value.value, seen.reason) == ("True", "Admitted")
    assert judge_group(group("Inqueue", SHORT), member("ray-g-pg"), started=True) is None


@pytest.mark.parametrize(("other", "shown"), [("ray-g-pg", "ray-g-pg"), (None, "None")])
def test_pods_that_somebody_moved_to_another_group_do_not_wait_for_ours(other: str | None, shown: str) -> None:
    seen = judge_group(group("Pending"), member(other))
    assert seen is not None
    assert (seen.reason, seen.patient) == ("OtherPodGroup", False)
    assert f"in PodGroup {shown}, not in g; turn KubeRay's --batch-scheduler off" in seen.message


def violations(change: Json) -> list[str]:
    spec = typed(small_spec(change))
    return [str(found) for check in CHECKS for found in check(spec) if "scheduling" in found.field]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (scheduling({"gang": "Kueue"}), ["set scheduling.queueName"]),
        (scheduling({"workloadPriorityClassName": "high"}), ["set scheduling.queueName"]),
        (scheduling({"gang": "Volcano", "workloadPriorityClassName": "high"}), ["scheduling.priorityClassName"]),
        (
            scheduling({"gang": "Volcano", "queueName": "a", "workloadPriorityClassName": "high"}),
            ["scheduling.priorityClassName"],
        ),
        (scheduling({"gang": "Volcano", "queueName": "a"}), []),
    ],
)
def test_what_does_not_go_together_is_refused(change: Json, words: list[str]) -> None:
    found = violations(change)
    assert len(found) == len(words), found
    assert all(word in text for word, text in zip(words, found, strict=True)), found
