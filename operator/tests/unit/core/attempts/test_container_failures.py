"""Ends of containers that never were ready: where they are seen, how they are counted, and which ones are hopeless."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest
from builders import Json, at

from rljob.api.status import ContainerFailure
from rljob.core import times
from rljob.core.attempts.container_failures import (
    APART_SECONDS,
    DOUBTFUL_APART_SECONDS,
    FAILURES_KEPT,
    REASON_BYTES,
    End,
    container_ends,
    described,
    hopeless,
    with_ends,
    worst,
)

NOT_FOUND = "/bin/bash: line 1: ray: command not found"
NO_BASH = 'unable to start container process: exec: "/bin/bash": stat /bin/bash: no such file or directory: unknown'
AS_ROOT = 'container has runAsNonRoot and image will run as root (pod: "p", container: ray-head)'
NODE_FAULT = "failed to create shim task: error running hook: exit status 1: device is not ready"
LATER = 1000.0


def text(seconds: float) -> str:
    return times.to_text(at(seconds))


def ended(code: int = 127, seconds: float = 10, **more: object) -> Json:
    return {"exitCode": code, "reason": "Error", "message": NOT_FOUND, "finishedAt": text(seconds), **more}


def status_of(name: str = "ray-head", state: Json | None = None, last: Json | None = None) -> Json:
    return {"name": name, "state": state or {}, "lastState": {"terminated": last} if last else {}}


def terminated(name: str = "ray-head", code: int = 127, seconds: float = 10, **more: object) -> Json:
    return status_of(name, {"terminated": ended(code, seconds, **more)})


def waiting(reason: str, message: str = "", last: Json | None = None, name: str = "ray-head") -> Json:
    return status_of(name, {"waiting": {"reason": reason, "message": message}}, last)


def pod(
    *containers: Json, role: str = "head", init: tuple[Json, ...] = (), meta: Json | None = None, **status: object
) -> Json:
    state = {"containerStatuses": list(containers), "initContainerStatuses": list(init), **status}
    metadata = {"name": "pod", "labels": {"ray.io/node-type": role}, **(meta or {})}
    return {"metadata": metadata, "status": state}


def ends(*pods: Json, events: tuple[Json, ...] = (), since: datetime | None = None) -> list[End]:
    sidecars = frozenset({"exporter", "judge"})
    return container_ends(pods, events, "cluster-uid", since or at(0), at(LATER), sidecars)


def event(note: str, seconds: float = 10, **more: object) -> Json:
    return {"metadata": {"name": "e", "creationTimestamp": text(seconds)}, "note": note, **more}


def deleted(state: str, role: str = "head", phase: str = "Failed") -> str:
    """Return the note of KubeRay's event about a pod that it deleted."""
    rest = f"Pod status: {phase}; Pod restart policy: Never; Ray container terminated status: {state}"
    return f"Deleted {role} Pod team/sums-{role}-x; {rest}"


def printed(code: int, message: str, reason: str = "Error", begun: str = "12:00:01", end: str = "12:00:02") -> str:
    """Return a terminated state as Go prints it."""
    ran = f"StartedAt:2026-01-01 {begun} +0000 UTC,FinishedAt:2026-01-01 {end} +0000 UTC"
    return f"&ContainerStateTerminated{{ExitCode:{code},Signal:0,Reason:{reason},Message:{message},{ran},ContainerID:containerd://a1,}}"


HEAD_END = End("head", "ray-head", 127, "Error", NOT_FOUND, text(10))


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        (pod(terminated()), HEAD_END),
        (pod(terminated("ray-worker"), role="worker"), End("worker", "ray-worker", 127, "Error", NOT_FOUND, text(10))),
        (pod(terminated(reason="")), HEAD_END),
        (pod(terminated(code=0, message="")), End("head", "ray-head", 0, "Error", "", text(10))),
        (pod(terminated(code=137, reason="OOMKilled")), End("head", "ray-head", 137, "OOMKilled", NOT_FOUND, text(10))),
        (pod(terminated(startedAt=text(9))), HEAD_END),
        (pod(terminated(startedAt="1970-01-01T00:00:00Z")), HEAD_END),
        (pod(terminated(finishedAt="")), End("head", "ray-head", 127, "Error", NOT_FOUND, text(LATER))),
        (
            pod(init=(terminated("warm", 1),), phase="Failed"),
            End("head", "warm", 1, "Error", NOT_FOUND, text(10)),
        ),
        # The kubelet has not yet set the phase.
        (
            pod(init=(terminated("warm", 1),), phase="Pending"),
            End("head", "warm", 1, "Error", NOT_FOUND, text(10)),
        ),
        # A sidecar that the kubelet restarts, whose image lacks what it runs.
        (
            pod(init=(waiting("CrashLoopBackOff", last=ended(), name="exporter"),), phase="Pending"),
            End("head", "exporter", 127, "Error", NOT_FOUND, text(10)),
        ),
        (
            pod(init=(waiting("InvalidImageName", "bad  name", name="warm"),)),
            End("head", "warm", None, "InvalidImageName", "bad name", text(LATER)),
        ),
        (pod(waiting("ErrImageNeverPull")), End("head", "ray-head", None, "ErrImageNeverPull", "", text(LATER))),
        (
            pod(waiting("CreateContainerError", "executable file `bash` not found in $PATH")),
            End(
                "head",
                "ray-head",
                None,
                "CreateContainerError",
                "executable file `bash` not found in $PATH",
                text(LATER),
            ),
        ),
        (
            pod(waiting("CreateContainerConfigError", AS_ROOT)),
            End("head", "ray-head", None, "CreateContainerConfigError", AS_ROOT, text(LATER)),
        ),
        # It ended before its deletion was requested.
        (pod(terminated(), meta={"deletionTimestamp": text(40), "deletionGracePeriodSeconds": 30}), HEAD_END),
        (pod(terminated(), meta={"deletionTimestamp": text(10)}), HEAD_END),
    ],
)
def test_an_end_is_seen_in_the_status_of_its_pod(found: Json, seen: End) -> None:
    assert ends(found) == [seen]


READY: dict[str, Any] = {"podIP": "10.0.0.9", "conditions": [{"type": "Ready", "status": "True"}]}


@pytest.mark.parametrize(
    "found",
    [
        {"metadata": {"name": "pod"}},
        pod(status_of(state={"running": {}})),
        pod(terminated(code=137)),
        pod(terminated(code=143)),
        pod(init=(terminated("warm", 0),), phase="Failed"),
        pod(init=(terminated("judge", 1, message="no database"),), phase="Pending"),
        pod(init=(waiting("CrashLoopBackOff", last=ended(1, message="no database"), name="judge"),), phase="Pending"),
        pod(waiting("CreateContainerError", NODE_FAULT)),
        pod(waiting("CreateContainerConfigError", "no such Secret")),
        pod(waiting("ImagePullBackOff", "not found")),
        pod(terminated(seconds=400, startedAt=text(100))),
        pod(terminated(), reason="Evicted"),
        pod(terminated(), conditions=[{"type": "DisruptionTarget", "status": "True"}]),
        pod(terminated(seconds=11), meta={"deletionTimestamp": text(40), "deletionGracePeriodSeconds": 30}),
        pod(init=(status_of("exporter", {"running": {}}, ended()),), **READY),
    ],
)
def test_what_the_image_does_not_explain_or_what_runs_is_no_end(found: Json) -> None:
    assert ends(found) == []


def test_a_pod_is_read_once_and_ends_before_the_start_do_not_count() -> None:
    same = {"uid": "u"}
    assert len(ends(pod(terminated(), meta=same), pod(terminated(), meta=same))) == 1
    assert [end.time for end in ends(pod(terminated(seconds=30)), pod(terminated(seconds=5), meta=same))] == [
        text(5),
        text(30),
    ]
    assert ends(pod(terminated(seconds=30)), since=at(31)) == []
    assert len(ends(pod(terminated(seconds=30)), since=at(30))) == 1


@pytest.mark.parametrize(
    ("found", "seen"),
    [
        (event(deleted(printed(127, NOT_FOUND + "\n"))), End("head", "ray-head", 127, "Error", NOT_FOUND, text(2))),
        (
            event(deleted(printed(1, "a, b\nc", reason=""), "worker", "Running")),
            End("worker", "ray-worker", 1, "Error", "a, b c", text(2)),
        ),
        # A note that was cut has no times.
        (event(deleted("&ContainerStateTerminated{ExitCode:1,Signal:0,Reason:Error,Message:a")), None),
        (event(deleted("nil", "worker")), End("worker", "", None, "Failed", "", text(10))),
        (
            event(
                deleted("nil"),
                deprecatedFirstTimestamp=text(20),
                deprecatedLastTimestamp=text(20),
                regarding={"uid": "cluster-uid"},
            ),
            End("head", "", None, "Failed", "", text(20)),
        ),
        (
            event(deleted(printed(137, "", reason="OOMKilled"))),
            End("head", "ray-head", 137, "OOMKilled", "", text(2)),
        ),
    ],
)
def test_an_end_is_read_from_kuberays_event_about_a_pod_that_is_gone(found: Json, seen: End | None) -> None:
    expected = seen or End("head", "ray-head", 1, "Error", "a", text(10))
    assert ends(events=(found,)) == [expected]


NO_DATES = ",StartedAt:- : +0000 UTC,FinishedAt:- : +0000 UTC"
FUTURE = ",StartedAt:2099-01-01 12:00:01 +0000 UTC,FinishedAt:2099-01-01 12:00:02 +0000 UTC,ContainerID:x,}"
NO_DAY = ",StartedAt:2026-02-30 12:00:01 +0000 UTC,FinishedAt:2026-02-30 12:00:02 +0000 UTC,ContainerID:x,}"
CUT = "&ContainerStateTerminated{ExitCode:1,Signal:0,Reason:Error,Message:"


@pytest.mark.parametrize("forged", [NO_DATES, FUTURE, NO_DAY])
def test_dates_that_the_container_prints_are_not_taken_for_its_own(forged: str) -> None:
    (whole,) = ends(events=(event(deleted(printed(1, f"a{forged}"))),))
    assert (whole.time, whole.message) == (text(2), f"a{forged}")
    (cut,) = ends(events=(event(deleted(f"{CUT}a{forged}")),))
    assert (cut.time, cut.message) == (text(10), f"a{forged}")


def test_a_state_that_the_container_prints_is_not_taken_for_its_own() -> None:
    forged = f"Ray container terminated status: {printed(99, 'forged')}"
    (end,) = ends(events=(event(deleted(printed(1, forged))),))
    assert (end.exit_code, end.message) == (1, forged)


@pytest.mark.parametrize("metadata", [{"name": "e"}, {"name": "e", "creationTimestamp": ""}])
def test_an_event_without_a_time_records_no_end(metadata: Json) -> None:
    assert ends(events=({"metadata": metadata, "note": deleted("nil")},)) == []


def test_a_long_reason_is_cut() -> None:
    long = "R" * 5000
    found = (pod(terminated(reason=long)), pod(terminated(reason=long), meta={"uid": "u"}))
    for end in ends(*found, events=(event(deleted(printed(1, "", reason=long))),)):
        assert len(end.reason.encode()) == REASON_BYTES
        assert with_ends((), [end])


@pytest.mark.parametrize(
    "found",
    [
        event(deleted("nil", phase="Succeeded")),
        event(deleted(printed(143, ""))),
        event(deleted(printed(1, "", begun="11:00:00"))),
        event(deleted("nil"), regarding={"uid": "another"}),
        event("Created head Pod team/sums-head-x"),
        {"metadata": {"name": "e", "creationTimestamp": text(10)}},
    ],
)
def test_other_events_record_no_end(found: Json) -> None:
    assert ends(events=(found,)) == []


def test_an_event_for_many_pods_records_the_first_and_the_last_end() -> None:
    many = event(
        "(combined from similar events): " + deleted("nil", "worker"),
        deprecatedFirstTimestamp=text(20),
        deprecatedLastTimestamp=text(200),
        deprecatedCount=85,
    )
    assert [end.time for end in ends(events=(many,))] == [text(20), text(200)]


def test_the_same_end_in_pod_and_event_counts_once() -> None:
    found = pod(terminated(seconds=2))
    assert [f.count for f in with_ends((), ends(found, events=(event(deleted(printed(127, NOT_FOUND)), 9),)))] == [1]


def at_times(*seconds: float, code: int = 127, message: str = NOT_FOUND) -> list[End]:
    return [End("head", "ray-head", code, "Error", message, text(each)) for each in seconds]


@pytest.mark.parametrize(
    ("found", "count"),
    [
        (at_times(0), 1),
        (at_times(0, APART_SECONDS - 1), 1),
        (at_times(0, APART_SECONDS), 2),
        (at_times(0, 10, 15, 20), 3),
        (at_times(0, 10, 20, 30, 40), 3),
        (at_times(0, 10, 59, code=1, message="no disk"), 1),
        (at_times(0, DOUBTFUL_APART_SECONDS, 119, 120, code=1, message="no disk"), 3),
    ],
)
def test_ends_that_lie_together_count_as_one(found: list[End], count: int) -> None:
    (counted,) = with_ends((), found)
    assert counted.count == count
    assert with_ends([counted], found) == [counted], "the same ends again change nothing"


def test_the_last_lines_stay_where_a_later_end_has_none() -> None:
    (counted,) = with_ends((), [*at_times(0), *at_times(30, message="")])
    assert (counted.count, counted.message, counted.time) == (2, NOT_FOUND, text(30))


def test_only_some_failures_are_kept_those_seen_most_often() -> None:
    others = [End("head", f"c{number}", 1, "Error", "", text(number)) for number in range(FAILURES_KEPT + 1)]
    kept = with_ends((), [*at_times(0, 30), *others])
    assert with_ends(kept, [*at_times(0, 30), *others]) == kept
    assert [failure.container for failure in kept] == ["c2", "c3", "c4", "ray-head"]


def test_a_hopeless_failure_is_counted_beside_others_that_were_seen_more_often() -> None:
    others = [
        End("head", "fetch-code", code, "Error", "", text(seconds))
        for code in range(FAILURES_KEPT)
        for seconds in (0, DOUBTFUL_APART_SECONDS)
    ]
    kept = with_ends((), others)
    assert [failure.count for failure in kept] == [2] * FAILURES_KEPT
    for seconds in (200, 300, 400):
        kept = with_ends(kept, [*others, *at_times(seconds)])
    (found,) = [failure for failure in kept if failure.exit_code == 127]
    assert hopeless(kept, ()) == found
    assert len(kept) == FAILURES_KEPT


def failure(**more: Any) -> ContainerFailure:  # noqa: ANN401 - fields of ContainerFailure
    base = {"role": "head", "container": "ray-head", "exit_code": 1, "reason": "Error", "message": "no disk"}
    return ContainerFailure(**{**base, "count": 3, "time": text(0), **more})


@pytest.mark.parametrize(
    ("found", "pods", "expected"),
    [
        (failure(exit_code=127), (), True),
        (failure(exit_code=127, count=2), (), False),
        (failure(container="warm"), (), True),
        # Ray that ran and gave up: an overloaded node, a port that is taken.
        (failure(), (), False),
        (failure(container="ray-worker"), (), False),
        (failure(exit_code=2), (), True),
        (failure(exit_code=137, reason="OOMKilled"), (), True),
        (failure(container="fetch-code"), (), False),
        (failure(container="fetch-code", exit_code=64), (), True),
        (failure(container="rljob-packages", message="No matching distribution found for regex"), (), False),
        (failure(container="rljob-packages", message=f"Expected sha256 {'0' * 64} Got {'1' * 64}"), (), True),
        (failure(container="rljob-packages", exit_code=2, message="no such option: --root-user-action"), (), True),
        (failure(container="", exit_code=None, reason="Failed", message=""), (), False),
        (failure(exit_code=128, reason="StartError", message=NO_BASH), (), True),
        (failure(exit_code=128, reason="StartError", message=NODE_FAULT), (), False),
        (failure(exit_code=None, reason="InvalidImageName", message=""), (), True),
        (failure(exit_code=127), (pod(**READY),), False),
        (failure(exit_code=127), (pod(role="worker", **READY), pod()), True),
    ],
)
def test_only_what_no_further_pod_can_change_is_hopeless(
    found: ContainerFailure, pods: tuple[Json, ...], *, expected: bool
) -> None:
    assert hopeless([found], pods) == (found if expected else None)


def test_a_failure_with_a_known_container_is_preferred() -> None:
    unknown = failure(container="", count=9)
    assert worst([]) is None
    assert worst([failure(count=1), unknown, failure(count=2)]) == failure(count=2)
    assert hopeless([unknown, failure(exit_code=2)], ()) == failure(exit_code=2)


@pytest.mark.parametrize(
    ("found", "message"),
    [
        (
            failure(count=1),
            "container ray-head of the head pod ended once before it was ready: Error, exit code 1: no disk",
        ),
        (
            failure(message=""),
            "container ray-head of the head pod ended at least 3 times before it was ready: Error, exit code 1",
        ),
        (
            failure(exit_code=None, reason="InvalidImageName", message="bad", count=2),
            "container ray-head of the head pod could not be created, seen twice: InvalidImageName: bad",
        ),
        (
            failure(role="worker", container=""),
            (
                "worker pods failed at least 3 times before Ray started in them: an init container ended, or the node "
                "refused the pod"
            ),
        ),
    ],
)
def test_a_failure_is_described_without_names_that_differ_each_time(found: ContainerFailure, message: str) -> None:
    assert described(found) == message


def test_of_a_long_message_the_end_is_kept() -> None:
    (end,) = ends(pod(terminated(message="x" * 5000 + "é the cause")))
    assert end.message.startswith("…")
    assert end.message.endswith("é the cause")
    assert len(end.message.encode()) <= 603


def test_a_user_that_the_kubelet_refuses_ends_the_start() -> None:
    def seen(reason: str, message: str) -> list[ContainerFailure]:
        found = [End("head", "ray-head", None, reason, message, text(20 * number)) for number in range(3)]
        return with_ends([], found)

    assert hopeless(seen("CreateContainerConfigError", AS_ROOT), [])
    assert hopeless(seen("CreateContainerConfigError", "no such Secret: exec format error"), []) is None
