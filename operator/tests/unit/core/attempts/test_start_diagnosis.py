"""Why pods do not start: the most informative reason wins."""

import pytest
from builders import Json

from rljob.core.attempts.start_diagnosis import (
    PROBLEMS,
    Diagnosis,
    Expected,
    StartReason,
    creation_failure,
    diagnose,
    refusal,
)


def pod(name: str = "a", **status: object) -> Json:
    return {"metadata": {"name": name}, "status": status}


def container(name: str = "ray", **state: object) -> Json:
    return {"name": name, "state": state}


READY = pod(conditions=[{"type": "Ready", "status": "True"}])
UNSCHEDULABLE = pod(
    conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "x " * 400}]
)
NO_IMAGE = pod(
    "z", containerStatuses=[container(waiting={"reason": "ImagePullBackOff", "message": "no\n  such image"})]
)
NO_SECRET = pod(initContainerStatuses=[container(waiting={"reason": "CreateContainerConfigError"})])
CONFIG = {"reason": "CreateContainerConfigError"}
KILLED = pod(containerStatuses=[container(terminated={"exitCode": 137, "reason": "OOMKilled"})])
RESTARTED = pod(containerStatuses=[container() | {"lastState": {"terminated": {"exitCode": 2, "message": "no disk"}}}])
EXITED = pod(containerStatuses=[container(terminated={"exitCode": 0})])
SLOW = pod(
    conditions=[{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "False"}],
    containerStatuses=[container(running={}), container("exporter") | {"ready": True}],
)


@pytest.mark.parametrize(
    ("found", "reason", "message"),
    [
        (NO_IMAGE, StartReason.IMAGE_PULL_FAILED, "pod z, container ray: ImagePullBackOff: no such image"),
        (NO_SECRET, StartReason.CONTAINER_CONFIG_INVALID, "pod a, container ray: CreateContainerConfigError: "),
        (KILLED, StartReason.CONTAINER_FAILED, "pod a, container ray: OOMKilled, exit code 137"),
        (RESTARTED, StartReason.CONTAINER_FAILED, "pod a, container ray: Error, exit code 2: no disk"),
        (EXITED, StartReason.POD_STARTING, "pod a waits for ray"),
        (SLOW, StartReason.POD_STARTING, "pod a waits for ray"),
        (pod(), StartReason.POD_STARTING, "pod a waits for its containers"),
    ],
)
def test_one_pod_is_diagnosed_with_reason_and_message(found: Json, reason: StartReason, message: str) -> None:
    assert diagnose([found]) == Diagnosis(reason, message)


def test_a_long_message_is_cut() -> None:
    found = diagnose([UNSCHEDULABLE])
    assert found.reason is StartReason.POD_UNSCHEDULABLE
    assert len(found.message) < 650
    assert found.message.endswith("…")


def test_the_order_of_checks_decides_and_not_the_order_of_pods() -> None:
    everything = [SLOW, RESTARTED, UNSCHEDULABLE, NO_SECRET, NO_IMAGE]
    assert diagnose(everything).reason is StartReason.IMAGE_PULL_FAILED
    assert diagnose(everything[:-1]).reason is StartReason.CONTAINER_CONFIG_INVALID
    assert diagnose(everything[:-2]).reason is StartReason.POD_UNSCHEDULABLE
    assert diagnose(everything[:-3]).reason is StartReason.CONTAINER_FAILED


def test_without_pods_there_is_none_to_speak_of() -> None:
    assert diagnose([]).reason is StartReason.NO_PODS


@pytest.mark.parametrize(
    ("pods", "expected", "message"),
    [
        (2, None, "all 2 pods are ready"),
        (1, None, "the only pod is ready"),
        (1, Expected(1, 0), "1 of 2 pods is ready; KubeRay has not created the rest yet"),
        (1, Expected(1, 1, was_complete=True), "1 of 2 pods is ready; the others are gone"),
        (2, Expected(1, 0), "all 2 pods are ready; KubeRay has counted 0 of 1 workers so far"),
        (2, Expected(1, 1), "all 2 pods are ready"),
        (2, Expected(1, 0, was_complete=True), "all 2 pods are ready"),
    ],
)
def test_pods_that_are_ready_are_counted(pods: int, expected: Expected | None, message: str) -> None:
    assert diagnose([READY] * pods, expected) == Diagnosis(StartReason.POD_STARTING, message)


def test_a_pod_that_is_being_deleted_is_not_one_that_is_ready() -> None:
    going = READY | {"metadata": {"name": "b", "deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert diagnose([READY, going], Expected(1, 1)).message == (
        "1 of 2 pods is ready; KubeRay has not created the rest yet; being deleted: b"
    )
    assert diagnose([going], Expected(0, 0)).message == (
        "0 of 1 pods are ready; KubeRay has not created the rest yet; being deleted: b"
    )


def test_pods_that_are_gone_are_not_said_to_come() -> None:
    assert diagnose([], Expected(1, 1)).message == "no pod exists yet"
    assert diagnose([], Expected(1, 1, was_complete=True)).message == "none of the 2 pods is left"


FAILED = {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreateHeadPod", "message": "exceeded\n  quota"}
PROVISIONED = {"type": "HeadPodReady", "status": "True"}


@pytest.mark.parametrize(
    ("conditions", "message"),
    [
        ([PROVISIONED, FAILED], "KubeRay: FailedCreateHeadPod: exceeded quota"),
        ([FAILED | {"message": ""}], "KubeRay: FailedCreateHeadPod: no message"),
        ([PROVISIONED, FAILED | {"status": "False"}], None),
        ([], None),
        (None, None),
    ],
)
def test_what_kuberay_could_not_make_stands_in_its_condition(
    conditions: list[Json] | None, message: str | None
) -> None:
    found = refusal({"status": {"conditions": conditions}})
    assert found == (None if message is None else Diagnosis(StartReason.PODS_REFUSED, message))


def test_only_what_needs_somebody_to_act_is_a_problem() -> None:
    assert sorted(StartReason) == sorted(PROBLEMS | {StartReason.POD_STARTING, StartReason.NO_PODS})


def test_the_latest_error_about_the_pod_of_a_job_is_the_diagnosis() -> None:
    assert creation_failure(()) is None
    old = {"metadata": {"creationTimestamp": "2026-01-01T12:00:00Z"}, "note": "old"}
    new = {"metadata": {"creationTimestamp": "2026-01-01T12:00:10Z"}, "note": "Error creating:\n quota"}
    for events in ((old, new), (new, old)):
        assert creation_failure(events) == Diagnosis(StartReason.PODS_REFUSED, "Error creating: quota")
    assert creation_failure(({"metadata": {}},)) == Diagnosis(StartReason.PODS_REFUSED, "no message")


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("no match for platform in manifest: not found", "no variant for the CPU architecture of the node"),
        ("manifest unknown: manifest unknown", "the registry has no such tag; correct the image"),
        ("failed to resolve reference: x: not found", "the registry has no such image or tag; correct the image"),
        ("dial tcp: i/o timeout", "dial tcp: i/o timeout"),
    ],
)
def test_the_cause_of_a_failed_pull_is_put_into_words(message: str, advice: str) -> None:
    found = diagnose([pod(containerStatuses=[container(waiting={"reason": "ErrImagePull", "message": message})])])
    assert found.reason is StartReason.IMAGE_PULL_FAILED
    assert f": {message}" in found.message
    assert found.message.endswith(advice)


@pytest.mark.parametrize(
    "message",
    [
        'container has runAsNonRoot and image will run as root (pod: "p", container: ray)',
        "container has runAsNonRoot and image has non-numeric user (ray), cannot verify user is non-root",
        'container\'s runAsUser breaks non-root policy (pod: "p", container: ray)',
    ],
)
def test_a_user_that_the_kubelet_refuses_is_answered_with_the_field(message: str) -> None:
    found = diagnose([pod(containerStatuses=[container(waiting=CONFIG | {"message": message})])])
    assert found.reason is StartReason.CONTAINER_CONFIG_INVALID
    for part in ("template.securityContext of spec.head and spec.workerGroups", "runAsUser", "runAsNonRoot: false"):
        assert part in found.message
    other = diagnose([pod(containerStatuses=[container(waiting=CONFIG | {"message": "no such Secret"})])])
    assert other.message.endswith("no such Secret")
