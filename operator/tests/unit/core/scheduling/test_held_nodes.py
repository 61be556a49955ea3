"""What a cluster that waits for devices holds, and how long it may."""

from collections.abc import Iterable, Mapping

import pytest
from builders import Json

from rljob.core import times
from rljob.core.scheduling.held_nodes import BACKOFF_SECONDS_MAX, Holding, backoff_seconds, bound_seconds, find_holding
from rljob.core.scheduling.worker_sizes import WorkerSizes

NPU = "huawei.com/Ascend910"
LACK = f"0/4 nodes are available: 1 node(s) had untolerated taint(s), 3 Insufficient {NPU}."
PREEMPTION = (
    "no new claims to deallocate, preemption: 0/4 nodes are available: 4 No preemption victims found for incoming pod."
)


def pod(name: str, node: str | None = None, message: str = "", at: str | None = "12:00:00", **metadata: str) -> Json:
    told: Json = {"type": "PodScheduled", "status": "True" if node else "False", "message": message}
    if at is not None:
        told["lastTransitionTime"] = f"2026-01-01T{at}Z"
    made = {"name": name, "creationTimestamp": "2026-01-01T11:00:00Z", **metadata}
    return {"metadata": made, "spec": {"nodeName": node} if node else {}, "status": {"conditions": [told]}}


def find(pods: Iterable[Json], room: Mapping[str, int] | None = None) -> Holding | None:
    return find_holding(pods, NPU, room or {}, WorkerSizes({"": 1}))


def worker(name: str, node: str) -> Json:
    made = pod(name, node)
    made["metadata"]["labels"] = {"ray.io/node-type": "worker"}
    return made


def test_pods_with_nodes_and_pods_that_lack_devices_are_counted() -> None:
    found = find([pod("h", "n0"), pod("w2", message=LACK), pod("w1", message=f"{LACK} {PREEMPTION}")])
    assert found is not None
    assert (found.placed, found.waiting) == (1, 2)
    taint, lack = "1 with an untolerated taint", "3 with too little huawei.com/Ascend910 free"
    assert found.words == f"pod w1: none of 4 nodes can run it: {taint}; {lack}"


@pytest.mark.parametrize(
    "others",
    [
        [],
        [pod("w", "n1", LACK)],
        [pod("w", message="0/4 nodes are available: 4 Insufficient cpu.")],
        [pod("w", message=LACK, deletionTimestamp="2026-01-01T12:00:00Z")],
        [{"metadata": {"name": "w"}}],
    ],
    ids=["alone", "placed meanwhile", "of something else", "leaving", "not judged yet"],
)
def test_a_cluster_that_lacks_no_devices_is_none_of_these(others: list[Json]) -> None:
    assert find([pod("h", "n0"), *others]) is None


@pytest.mark.parametrize(
    ("pods", "since"),
    [
        ((pod("h", "n0", at="12:00:00"), pod("w", message=LACK, at="12:00:05")), "12:00:05"),
        ((pod("h", "n0", at="12:00:09"), pod("w", message=LACK, at="12:00:05")), "12:00:09"),
        (
            (pod("h", "n0", at="12:00:09"), pod("v", "n1", at="12:08:00"), pod("w", message=LACK, at="12:00:05")),
            "12:00:09",
        ),
        ((pod("h", "n0", at=None), pod("w", message=LACK, at="12:00:05")), "12:00:05"),
    ],
    ids=["waits later", "holds later", "from the first node on", "by the age of the pod"],
)
def test_it_counts_from_when_a_part_was_held_while_another_was_missing(pods: tuple[Json, ...], since: str) -> None:
    found = find(pods)
    assert found is not None
    assert found.since is not None
    assert times.to_text(found.since) == f"2026-01-01T{since}Z"


def test_a_cluster_without_any_node_holds_nothing() -> None:
    found = find([pod("h", message=LACK)])
    assert found is not None
    assert (found.placed, found.since) == (0, None)


def test_a_pod_whose_place_is_being_cleared_waits_for_nobody() -> None:
    nominated = pod("w", message=LACK)
    nominated["status"]["nominatedNodeName"] = "n1"
    assert find([pod("h", "n0"), nominated]) is None


@pytest.mark.parametrize(
    ("message", "waits"),
    [
        (f"2 Insufficient {NPU}, 1 node(s) had untolerated taint(s).", False),
        (f"3 Insufficient {NPU}.", True),
        (f"2 node(s) didn't have free ports for the requested pod ports, 1 Insufficient {NPU}.", True),
        (f"1 node(s) didn't have free ports for the requested pod ports, 1 Insufficient {NPU}.", False),
        ("3 node(s) didn't have free ports for the requested pod ports.", False),
        (f"2 Insufficient {NPU}, 1 Insufficient cpu. preemption: 9 Insufficient {NPU}.", False),
        (f"3 Insufficient {NPU}-2.", False),
    ],
)
def test_only_nodes_that_others_have_are_waited_for(message: str, *, waits: bool) -> None:
    ours = [pod("h", "n0"), worker("w1", "n1"), worker("w2", "n2")]
    found = find([*ours, pod("w3", message=f"0/3 nodes are available: {message}")], {"n1": 1, "n2": 1})
    assert (found is not None) is waits


def test_a_node_that_our_worker_shares_is_not_used_up_by_it() -> None:
    pods = [worker("w1", "n1"), pod("w2", message=f"0/1 nodes are available: 1 Insufficient {NPU}.")]
    assert find(pods, {"n1": 2}) is not None
    assert find(pods, {"n1": 1}) is None
    assert find(pods) is None


def test_workers_of_another_group_leave_room_by_their_own_size() -> None:
    sizes, lack = WorkerSizes({"train": 12, "generate": 4}), f"0/1 nodes are available: 1 Insufficient {NPU}."

    def holding(of_worker: str, of_other: str) -> Holding | None:
        placed, waiting = worker("w1", "n1"), pod("w2", message=lack)
        placed["metadata"]["labels"]["ray.io/group"] = of_worker
        waiting["metadata"]["labels"] = {"ray.io/group": of_other}
        return find_holding([placed, waiting], NPU, {"n1": 16}, sizes)

    assert holding("train", "generate") is not None, "4 of 16 devices are left, so another job has them"
    assert holding("generate", "train") is not None
    assert holding("train", "train") is None, "its own worker has the devices"


def test_long_words_of_the_scheduler_are_cut() -> None:
    found = find([pod("w", message=LACK + 400 * "x")])
    assert found is not None
    assert found.words.endswith("x…")
    assert len(found.words) < 320


def test_of_two_jobs_one_yields_first_and_both_within_twice_the_setting() -> None:
    bounds = {bound_seconds(60, f"job-{number}") for number in range(20)}
    assert len(bounds) == 20
    assert all(60 <= bound < 120 for bound in bounds)


@pytest.mark.parametrize(
    ("waited", "least"), [(0, 30), (50, 30), (200, 100), (600, 300), (1_000_000, BACKOFF_SECONDS_MAX)]
)
def test_the_pause_grows_with_the_wait_and_is_bounded(waited: float, least: float) -> None:
    pauses = [backoff_seconds(waited, 60, f"job-{number}") for number in range(20)]
    assert all(least <= pause <= 2 * least for pause in pauses)
    assert len(set(pauses)) > 10
