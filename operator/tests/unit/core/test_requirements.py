"""The requests that a job costs at each point of its life."""

from dataclasses import replace

import pytest
from builders import (
    CLUSTER_NAME,
    NOW,
    SUBMISSION_ID,
    Json,
    answer,
    at,
    cluster,
    job,
    merged,
    pod,
    requests,
    small_spec,
    status_begun,
    status_finished,
    status_initialized,
    status_intended,
    status_recorded,
    status_submitted,
    status_training,
)

from rljob.core import times
from rljob.core.observed import UNSEEN, Unseen
from rljob.core.reconcile import required
from rljob.core.requirements import (
    NOTHING,
    STOPS_HERE,
    Head,
    LogSource,
    Pods,
    Requirements,
    needs_evidence,
    needs_ray_job,
    podless_initializer,
    running_initializer,
    shows_ends,
)
from rljob.core.status import read_status
from rljob.core.watched import Watched
from rljob_runtime.contract import Outcome, Phase, Progress

SPEC = small_spec({"initializers": [{"name": "prepare", "command": ["true"]}]})
AVOIDED = {"n1": "DeviceFault", "n2": "HeadLost", "n3": "SubHealthy"}
SNAPSHOT = CLUSTER_NAME
PREPARED = "sums-0a1b2-spec-1"
"""Initializers run between this spec and its cluster."""
HEAD = Head(pod_ip="10.0.0.9", pod_uid="head-uid", job_uid=job()["metadata"]["uid"], cluster_name=CLUSTER_NAME)


def asked(status: Json | None, *clusters: Json, head: Json | None = None, spec: Json | None = None) -> Requirements:
    return requests(job(spec, status), clusters, head, NOW)


def test_a_new_job_asks_whether_it_began_already() -> None:
    assert asked(None) == Requirements(recall=True, siblings=True, nodes=True, pod_groups=True)


def test_a_job_that_is_deleted_or_finished_asks_nothing() -> None:
    assert requests(job(deletionTimestamp="2026-01-01T00:00:00Z"), (), None, NOW) == Requirements()
    assert requests(job(status=status_finished()), (), None, at(60)) == Requirements()


STOP = {
    "reason": "Deleted",
    "mode": "AfterStep",
    "requestedTime": times.to_text(NOW),
    "deadline": times.to_text(at(60)),
}


@pytest.mark.parametrize("stop", [None, STOP], ids=["before the stop", "stopping"])
def test_a_deleted_job_that_may_save_first_asks_its_head_once_the_stop_is_ordered(stop: Json | None) -> None:
    status = merged(status_submitted(), {"stop": stop} if stop else {})
    leaving = job(status=status, deletionTimestamp=times.to_text(NOW), finalizers=["rljob.dev/stop"])
    held = requests(leaving, (cluster(),), pod(), NOW)
    running = asked(status_submitted(), cluster(ready=1), head=pod())
    assert running.progress
    assert held == (running if stop else Requirements(snapshot_name=SNAPSHOT))


def test_a_job_whose_stop_is_ordered_in_this_round_asks_for_nothing_more() -> None:
    status = status_submitted()
    assert requests(job({"suspend": True}, status), (cluster(),), pod(), NOW) == Requirements(snapshot_name=SNAPSHOT)


def test_a_suspended_job_that_holds_nothing_asks_for_nothing_more() -> None:
    ended = merged(status_begun(), {"intent": {"ended": True}})
    assert requests(job({"suspend": True}, ended), (), None, NOW) == Requirements(snapshot_name=SNAPSHOT)


def test_a_finished_job_whose_intent_is_lost_is_recalled_only_if_it_may_be_cleaned_up() -> None:
    finished = {name: value for name, value in status_finished().items() if name not in ("intent", "resolved")}
    assert requests(job(status=finished), (), None, NOW) == Requirements()
    assert requests(job({"cleanup": {"jobAfterSeconds": 60}}, finished), (), None, NOW) == Requirements(recall=True)
    assert requests(job(status=finished), (cluster(),), None, NOW) == Requirements(recall=True)


def test_between_two_generations_clusters_that_nobody_wants_are_deleted_without_a_request() -> None:
    ended = merged(status_begun(), {"intent": {"ended": True}})
    assert requests(job(status=ended), (cluster(),), None, NOW) == Requirements(snapshot_name=SNAPSHOT)


def test_a_finished_job_with_a_cluster_asks_how_long_to_keep_it() -> None:
    assert requests(job(status=status_finished()), (cluster(),), None, at(60)) == Requirements(snapshot_name=SNAPSHOT)


def test_initializers_are_asked_for_until_all_are_complete() -> None:
    assert asked(status_begun(SPEC), spec=SPEC) == Requirements(
        snapshot_name=PREPARED,
        initializer_names=("sums-0a1b2-prepare",),
        pods=Pods(f"rljob.dev/job-uid={HEAD.job_uid},rljob.dev/initializer"),
        initializer_log=True,
        initializer_events=True,
    )


RUNS = {"metadata": {"labels": {"rljob.dev/initializer": "prepare"}, "creationTimestamp": "2026-01-01T12:00:00Z"}}
OF_ANOTHER = {"metadata": {"labels": {"rljob.dev/initializer": "earlier"}}}


@pytest.mark.parametrize(
    ("jobs", "pods", "seconds", "found"),
    [
        ((RUNS,), (), 9, False),
        ((RUNS,), (), 10, True),
        ((RUNS,), (OF_ANOTHER,), 10, True),
        ((RUNS,), (OF_ANOTHER, RUNS), 10, False),
        ((None, RUNS | {"status": {"conditions": [{"type": "Complete"}]}}, RUNS), (), 10, True),
        ((None,), (), 10, False),
        (({},), (), 10, False),
    ],
)
def test_a_job_without_a_pod_is_noticed_after_some_seconds(
    jobs: tuple[Json | None, ...], pods: tuple[Json, ...], seconds: float, *, found: bool
) -> None:
    named = {str(number): each for number, each in enumerate(jobs)}
    assert podless_initializer(named, pods, at(seconds)) == (RUNS if found else None)


@pytest.mark.parametrize(("seconds", "due"), [(9, False), (10, True)])
def test_a_log_is_read_again_after_ten_seconds(seconds: float, *, due: bool) -> None:
    told = {"name": "prepare", "line": "3 of 9", "observedTime": "2026-01-01T12:00:00Z"}
    status = status_begun(SPEC) | {"initializer": told}
    assert requests(job(SPEC, status), (), None, at(seconds)).initializer_log is due


def test_the_code_is_looked_for_before_anything_else_starts() -> None:
    spec = merged(SPEC, {"code": {"type": "ConfigMap", "configMap": {"name": "rewards"}}})
    assert asked(status_begun(spec), spec=spec) == Requirements(
        snapshot_name=PREPARED, code_name="rewards", code_copy_name="sums-0a1b2-code"
    )
    frozen = status_begun(spec)
    frozen["resolved"]["code"]["digest"] = "d"
    assert asked(frozen, spec=spec).initializer_names == ("sums-0a1b2-prepare",)


RUNNING: Json = {"state": {"running": {}}}
WAITING: Json = {"state": {"waiting": {}}}


@pytest.mark.parametrize(
    ("status", "found"),
    [
        ({}, None),
        ({"containerStatuses": [{"name": "initializer", **WAITING}]}, None),
        ({"containerStatuses": [{"name": "initializer", **RUNNING}]}, LogSource("pod-a", "initializer")),
        (
            {"initContainerStatuses": [{"name": "fetch-code", **RUNNING}], "containerStatuses": [{"name": "x"}]},
            LogSource("pod-a", "fetch-code"),
        ),
    ],
    ids=["new", "waits", "runs", "fetches"],
)
def test_the_log_is_that_of_the_container_that_runs(status: Json, found: LogSource | None) -> None:
    assert running_initializer([{"metadata": {"name": "pod-a"}, "status": status}]) == found


def test_a_step_that_decides_in_any_case_ends_the_requests_and_is_no_step_without_one() -> None:
    assert STOPS_HERE != NOTHING
    held = Watched(job(merged(small_spec(), {"suspend": True}), status_begun()), (), None, NOW)
    assert required(held) == Requirements(snapshot_name=SNAPSHOT, stops_here=True)
    assert not required(Watched(job(status=status_submitted()), (cluster(ready=1),), pod(), NOW)).stops_here


def test_requirements_of_several_steps_are_met_together() -> None:
    often, urgent = Pods("a=b", 2.0), Pods("a=b", 6.0, urgent=True)
    first, second = Requirements(snapshot_name="s", pods=often), Requirements(snapshot_name="s", pods=urgent, held=True)
    both = Requirements(snapshot_name="s", pods=Pods("a=b", 2.0, urgent=True), held=True)
    assert first | second == second | first == both
    assert both | STOPS_HERE == replace(both, stops_here=True)
    assert both | NOTHING == NOTHING | both == both


@pytest.mark.parametrize(
    ("one", "other", "named"),
    [
        (
            Requirements(pods=Pods("a=b", urgent=True)),
            Requirements(pods=Pods("a=c")),
            "list different pods: a=b and a=c",
        ),
        (Requirements(config_name="a"), Requirements(config_name="b"), "different values of config_name: a and b"),
    ],
)
def test_no_request_is_lost_to_that_of_a_later_step(one: Requirements, other: Requirements, named: str) -> None:
    for first, second in ((one, other), (other, one)):
        with pytest.raises(AssertionError, match="different"):
            _ = first | second
    with pytest.raises(AssertionError, match=named):
        _ = one | other


def test_the_frozen_rendering_is_asked_for_before_the_cluster_is_there() -> None:
    assert asked(status_initialized()) == Requirements(
        snapshot_name=SNAPSHOT, config_name=CLUSTER_NAME, pod_groups=True
    )


def test_a_cluster_that_is_gone_is_looked_for() -> None:
    assert asked(status_recorded()) == Requirements(snapshot_name=SNAPSHOT, cluster_name=CLUSTER_NAME)


def test_a_status_without_its_resolved_part_counts_as_lost() -> None:
    broken = status_begun()
    del broken["resolved"]
    assert asked(broken) == Requirements(recall=True, siblings=True, nodes=True, pod_groups=True)


def test_pods_are_asked_for_until_all_are_ready() -> None:
    assert asked(status_recorded(), cluster()) == Requirements(
        snapshot_name=SNAPSHOT, pods=Pods(f"ray.io/cluster={CLUSTER_NAME}", 6.0), nodes=True, pod_ends=True
    )
    late = requests(job(status=status_recorded()), (cluster(),), None, at(1800))
    assert late.pods == Pods(f"ray.io/cluster={CLUSTER_NAME}", 0.0, urgent=True)
    assert asked(status_recorded(), cluster(ready=1), head=pod()) == Requirements(
        snapshot_name=SNAPSHOT, head=HEAD, progress=True
    )


def made_at(time: str = "2026-01-01T12:00:00Z", **status: object) -> Json:
    return {"metadata": {"name": "pod", "creationTimestamp": time}, "status": status}


@pytest.mark.parametrize(
    ("pods", "found"),
    [
        ((), False),
        (({"metadata": {"name": "pod"}},), False),
        ((made_at(), made_at("2026-01-01T12:00:29Z")), False),
        ((made_at("2026-01-01T12:00:30Z"), made_at()), True),
        ((made_at(phase="Failed"),), True),
        ((made_at(containerStatuses=[{"name": "ray", "state": {"terminated": {}}}]),), True),
        ((made_at(containerStatuses=[{"name": "ray", "state": {"running": {}}}, {"name": "other"}]),), False),
    ],
)
def test_pods_that_ended_or_are_younger_than_others_show_that_pods_are_replaced(
    pods: tuple[Json, ...], *, found: bool
) -> None:
    assert shows_ends(pods) is found


def test_pods_of_a_cluster_that_is_young_or_waits_in_a_queue_are_not_asked_for() -> None:
    young, queued = cluster(creationTimestamp="2026-01-01T11:59:51Z"), cluster()
    queued["spec"]["suspend"] = True
    for waits in (young, queued):
        assert asked(status_recorded(), waits) == Requirements(snapshot_name=SNAPSHOT)


def test_an_intended_submission_is_asked_for_at_the_intended_head() -> None:
    assert asked(status_intended(), cluster(ready=1), head=pod()) == Requirements(
        snapshot_name=SNAPSHOT, head=HEAD, ray_job_id=SUBMISSION_ID
    )


def test_a_running_job_is_followed_at_the_exporter() -> None:
    found = asked(status_submitted(), cluster(ready=1), head=pod())
    assert found == Requirements(snapshot_name=SNAPSHOT, head=HEAD, progress=True, ray_job_id=SUBMISSION_ID, held=True)


def test_before_the_next_generation_nodes_that_may_be_well_again_are_looked_at() -> None:
    until = times.to_text(at(60))
    avoided = [{"name": name, "reason": reason, "until": until} for name, reason in AVOIDED.items()]
    ended = merged(status_begun(SPEC), {"intent": {"ended": True}, "excludedNodes": avoided})
    wanted = Requirements(snapshot_name=PREPARED, siblings=True, nodes=True, look_at=("n1", "n3"), pod_groups=True)
    assert asked(ended) == wanted
    waits = {"type": "ClusterReady", "status": "False", "reason": "WaitingForNodes", "lastTransitionTime": until}
    assert asked(merged(ended, {"conditions": [waits]})) == replace(wanted, fresh_nodes=True)
    for_devices = [waits | {"reason": "WaitingForDevices"}]
    assert asked(merged(ended, {"conditions": for_devices})) == replace(wanted, fresh_nodes=True, taken=True)


@pytest.mark.parametrize("head", [None, pod(uid="another")])
def test_a_head_that_the_watch_lacks_is_looked_for(head: Json | None) -> None:
    found = asked(status_submitted(), cluster(ready=1), head=head)
    pods = f"ray.io/cluster={CLUSTER_NAME}"
    assert found == Requirements(snapshot_name=SNAPSHOT, pods=Pods(pods, urgent=True), held=True)


def test_a_head_without_address_is_not_asked() -> None:
    assert asked(status_submitted(), cluster(ready=1), head=pod(podIP=None)) == Requirements(snapshot_name=SNAPSHOT)


OUTCOME = Outcome(exit_code=0, reason="Done", message="")


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (UNSEEN, True),
        (answer({"phase": Phase.IDLE}), True),
        (answer({"phase": Phase.STARTING}), True),
        (answer({"phase": Phase.ENDED}), True),
        (answer({"phase": Phase.ENDED, "outcome": OUTCOME}), False),
        (answer(), False),
        (answer({"observed_time": NOW.timestamp() - 61}), True),
    ],
)
def test_the_job_api_is_asked_when_the_exporter_leaves_a_doubt(told: Progress | Unseen, *, wanted: bool) -> None:
    assert needs_ray_job(told, NOW) is wanted


@pytest.mark.parametrize(("code", "wanted"), [(0, False), (1, True), (64, False), (65, True), (66, True)])
def test_the_pods_are_looked_at_for_an_end_that_they_may_explain(code: int, *, wanted: bool) -> None:
    ended = answer({"phase": Phase.ENDED, "outcome": Outcome(code, "", "")})
    current = read_status(job(status=status_training()))
    assert needs_evidence(ended, UNSEEN, current) is wanted
    assert needs_evidence(ended, UNSEEN, None) is wanted


def test_a_run_that_the_operator_stops_needs_no_explanation() -> None:
    now = "2026-01-01T12:00:00Z"
    stop = {"reason": "Suspended", "mode": "AfterStep", "requestedTime": now, "deadline": now}
    current = read_status(job(status=status_training() | {"stop": stop}))
    assert not needs_evidence(answer({"phase": Phase.ENDED, "outcome": Outcome(66, "", "")}), UNSEEN, current)
    assert needs_evidence(answer({"phase": Phase.ENDED, "outcome": Outcome(1, "", "")}), UNSEEN, current)


def test_an_intent_without_head_asks_no_pod() -> None:
    broken = status_submitted()
    del broken["intent"]["headPodUID"]
    assert asked(broken, cluster(ready=1), head=pod()).head is None


def test_a_job_api_that_is_silent_before_the_submission_has_the_exporter_asked() -> None:
    before, quiet = status_intended(), status_intended()
    for told in quiet["conditions"]:
        if told["type"] == "ClusterReady":
            quiet["conditions"] = [*quiet["conditions"], {**told, "type": "Progressing", "reason": "HeadSilent"}]
            break
    found = [requests(job(status=status), (cluster(ready=1),), pod(), at(60)) for status in (before, quiet)]
    assert [(need.progress, need.ray_job_id) for need in found] == [(False, SUBMISSION_ID), (True, SUBMISSION_ID)]


ENDING: Json = {
    "time": times.to_text(NOW),
    "deadline": times.to_text(at(60)),
    "exitCode": 1,
    "message": "",
    "lastStep": 1,
}


@pytest.mark.parametrize(
    ("clusters", "pods"),
    [((), None), ((cluster(ready=1),), Pods(f"ray.io/cluster={CLUSTER_NAME}", urgent=True))],
    ids=["cluster is gone", "head is gone"],
)
def test_an_end_that_only_ray_reported_is_closed_with_the_pods_that_are_left(
    clusters: tuple[Json, ...], pods: Pods | None
) -> None:
    found = requests(job(status=status_submitted() | {"ending": ENDING}), clusters, None, NOW)
    assert (found.head, found.pods, found.cluster_name) == (None, pods, None)


def test_code_of_a_job_that_an_earlier_version_began_is_recorded_without_a_request() -> None:
    begun = status_begun()
    del begun["resolved"]["code"]
    assert asked(begun) == Requirements(snapshot_name=SNAPSHOT)


def test_a_job_without_initializers_waits_for_none() -> None:
    copied = status_begun(merged(small_spec(), {"code": {"type": "ConfigMap", "configMap": {"name": "rewards"}}}))
    copied["resolved"]["code"]["digest"] = "d"
    assert asked(copied).initializer_names == ()
    assert asked(copied).config_name is None


def test_a_cluster_of_another_generation_is_deleted_before_anything_is_requested() -> None:
    other = cluster()
    other["metadata"]["name"] = "sums-0a1b2-7"
    assert asked(status_submitted(), other, cluster(ready=1), head=pod()) == Requirements(snapshot_name=SNAPSHOT)
