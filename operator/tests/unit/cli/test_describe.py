"""`rljob describe`: one paragraph that explains why a job does not run, with numbers and the fix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from builders import UID, job

from rljob.cli.describe import World, why
from rljob.cli.main import main
from rljob.render.labels import KUEUE_QUEUE, PAUSED

Json = dict[str, Any]
CLUSTER = "sums-0a1b2-1"
NPU = "huawei.com/Ascend910"
STARTING: Json = {
    "state": "Starting",
    "reason": "NoPods",
    "intent": {"clusterName": CLUSTER, "startDeadline": "2026-01-01T00:30:00Z"},
}
END = "The attempt fails unless it starts by 2026-01-01T00:30:00Z (deadlines.startSeconds)."


def cluster(**spec: object) -> Json:
    container = {"name": "ray-worker", "resources": {"limits": {NPU: "16", "memory": "1Gi"}}}
    group = {"replicas": 3, "template": {"spec": {"containers": [container]}}}
    metadata = {"name": CLUSTER, "uid": "u-1", "labels": {KUEUE_QUEUE: "team"}}
    return {"metadata": metadata, "spec": {"workerGroupSpecs": [group], **spec}}


def pod(name: str, *conditions: Json, **status: object) -> Json:
    return {"metadata": {"name": name}, "status": {"phase": "Pending", "conditions": list(conditions), **status}}


def unscheduled(name: str, said: str) -> Json:
    return pod(name, {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said})


def node(name: str, usable: int = 16, *, capacity: int = 16, ready: str = "True", cordoned: bool = False) -> Json:
    state = {
        "capacity": {NPU: f"{capacity * 1000}m"},
        "allocatable": {NPU: str(usable)},
        "conditions": [{"type": "Ready", "status": ready}],
    }
    return {"metadata": {"name": name}, "spec": {"unschedulable": True} if cordoned else {}, "status": state}


def event(reason: str, note: str, about: str = CLUSTER, time: str = "2026-01-01T00:00:00Z") -> Json:
    return {"reason": reason, "note": note, "regarding": {"name": about}, "deprecatedLastTimestamp": time}


def world(status: Json | None = None, **found: Any) -> World:  # noqa: ANN401 - fields of World
    return World(job(status=STARTING | (status or {})), **found)


def without_first_sentence(found: World) -> str:
    """Return the paragraph without its first sentence."""
    return why(found).split(". ", 1)[1]


def test_a_job_that_nobody_looks_at_says_who_should() -> None:
    assert why(World(job())) == (
        "team/sums is not reconciled yet. "
        "The operator has not written a status yet. Check that it runs and that it watches this namespace."
    )
    assert without_first_sentence(World(job({"managedBy": "example.com/other"}))).startswith(
        "spec.managedBy assigns it to example.com/other"
    )
    assert without_first_sentence(World(job(annotations={PAUSED: "true"}))).startswith(
        "The annotation rljob.dev/paused pauses"
    )


def test_what_the_status_knows_is_not_looked_for() -> None:
    invalid = World(job(status={"state": "Invalid", "reason": "InvalidSpec", "message": "trainer.steps: is required"}))
    assert why(invalid) == "team/sums is Invalid (InvalidSpec). trainer.steps: is required."
    running = {"state": "Training", "reason": "Training", "progress": {"summary": "12/40"}}
    assert without_first_sentence(World(job(status=running))) == "It is running: step 12/40."
    reported = running | {"notes": ["3 of 5 prompts were left out"]}
    assert without_first_sentence(World(job(status=reported))).endswith(
        "The run reported: 3 of 5 prompts were left out."
    )
    made = running | {"rayCluster": {"name": CLUSTER, "runtimeImage": "operator:1", "verlVersion": "0.9.1"}}
    assert without_first_sentence(World(job(status=made))).endswith(
        "Its cluster has the runtime of operator:1 and verl 0.9.1."
    )
    assert without_first_sentence(World(job(status={"state": "Pending"}))) == "The status has no further detail."
    again = {
        "state": "Restarting",
        "message": "NodeLost",
        "nextAttemptTime": "2026-01-01T00:01:00Z",
        "excludedNodes": [{"name": "a", "reason": "NodeLost"}],
    }
    assert without_first_sentence(World(job(status=again))) == (
        "NodeLost. It avoids a (NodeLost). The next attempt starts at 2026-01-01T00:01:00Z."
    )


def test_a_pod_that_waits_for_anything_else_has_the_start_deadline_alone() -> None:
    said = "0/2 nodes are available: 2 Insufficient cpu."
    assert without_first_sentence(world(clusters=[cluster()], pods=[unscheduled("w-0", said)])) == (
        f"0 of its 4 pods are scheduled. pod w-0: none of 2 nodes can run it: 2 with too little cpu free. {END}"
    )


def test_a_job_that_gave_back_its_nodes_says_what_it_waits_for() -> None:
    message = (
        f"3 of 4 pods have nodes, 1 waits for devices: pod w-2: 0/4 nodes are available: 4 Insufficient {NPU}; "
        "released at 2026-01-01T00:02:00Z; next try from 2026-01-01T00:03:00Z"
    )
    waits = {"state": "Pending", "reason": "WaitingForDevices", "message": message}
    assert why(world(waits)) == f"team/sums is Pending (WaitingForDevices). {message}."


def test_a_suspended_job_says_how_it_goes_on_and_an_ended_one_does_not() -> None:
    assert "to begin at step 0." in without_first_sentence(World(job({"suspend": True}, status={"state": "Suspended"})))
    saved = {"checkpoint": {"path": "/data/ckpt", "everySteps": 5}}
    assert "resume from the last" in without_first_sentence(
        World(job({"suspend": True, **saved}, status={"state": "Suspended"}))
    )
    assert (
        without_first_sentence(World(job({"suspend": True}, status={"state": "Succeeded", "message": "40 steps"})))
        == "40 steps."
    )


def test_a_queued_job_shows_the_reason_of_its_workload() -> None:
    workload: Json = {
        "metadata": {"name": "raycluster-sums", "ownerReferences": [{"uid": "u-1"}]},
        "status": {
            "conditions": [
                {
                    "type": "QuotaReserved",
                    "status": "False",
                    "reason": "WaitingForQuota",
                    "message": f"insufficient unused quota for {NPU} in flavor a3, 16 more needed",
                },
                {"type": "Evicted", "status": "True", "reason": "Preempted", "message": "Preempted by job-b"},
            ],
            "admissionChecks": [{"name": "budget", "state": "Pending", "message": "asked"}],
        },
    }
    queued = cluster(suspend=True)
    assert without_first_sentence(world(clusters=[queued], workloads=[workload])) == (
        "Its RayCluster sums-0a1b2-1 is waiting in queue team. Kueue reports QuotaReserved=False (WaitingForQuota): "
        f"insufficient unused quota for {NPU} in flavor a3, 16 more needed. Kueue reports Evicted=True (Preempted): "
        "Preempted by job-b. Admission check budget is Pending: asked."
    )
    assert "that the namespace has a LocalQueue team" in without_first_sentence(world(clusters=[queued], workloads=[]))
    assert "cannot be read" in without_first_sentence(world(clusters=[queued]))
    stopped = {**workload, "spec": {"active": False}, "status": {}}
    assert without_first_sentence(world(clusters=[queued], workloads=[stopped])).endswith(
        "Its Workload raycluster-sums is deactivated (spec.active is false). Kueue has not evaluated its Workload yet."
    )


def test_an_exhausted_quota_is_shown_with_its_numbers() -> None:
    note = (
        'Failed to create worker Pod for the cluster team/sums-0a1b2-1, pods "sums-w" is forbidden: exceeded quota: '
        f"npus, requested: requests.cpu=8,requests.{NPU}=16, used: requests.cpu=4,requests.{NPU}=48, "
        f"limited: requests.cpu=9,requests.{NPU}=48"
    )
    events = [
        event("FailedToCreateWorkerPod", note, time="2026-01-01T00:05:00Z"),
        event("FailedToCreateHeadPod", "older"),
        event("FailedToCreateWorkerPod", "of another", about="other", time="2026-01-01T00:09:00Z"),
    ]
    assert without_first_sentence(world(clusters=[cluster()], pods=[pod("head")], events=events)) == (
        "1 of its 4 pods have been created. ResourceQuota npus is exhausted: a pod requests requests.cpu 8 (4 of 9 are "
        f"used) and requests.{NPU} 16 (48 of 48 are used). The pods are created when other workloads of the "
        f"namespace end, or when the quota is raised. {END}"
    )


def test_another_refusal_of_pods_is_passed_on() -> None:
    note = (
        'Failed to create head Pod, pods "h" is forbidden: violates PodSecurity "restricted:latest": hostPath volumes'
    )
    events = [event("FailedToCreateHeadPod", note)]
    assert without_first_sentence(world(clusters=[cluster()], events=events)) == (
        "0 of its 4 pods have been created. The namespace rejects further pods: "
        'violates PodSecurity "restricted:latest": hostPath volumes. ' + END
    )
    # An old rejection of pods that exist by now is not reported.
    there = [pod(f"p{n}") for n in range(4)]
    assert "PodSecurity" not in without_first_sentence(world(clusters=[cluster()], pods=there, events=events))


def test_an_image_or_a_missing_secret_is_named_with_what_to_look_at() -> None:
    def waits(reason: str, message: str) -> Json:
        state = {"name": "ray-worker", "state": {"waiting": {"reason": reason, "message": message}}}
        return pod("w-0", containerStatuses=[state])

    pulls = world(clusters=[cluster()], pods=[waits("ErrImagePull", "not found")])
    assert without_first_sentence(pulls) == (
        "pod w-0, container ray-worker: ErrImagePull: not found; the registry has no such image or tag; correct the "
        "image. Check image, registry and runtime.imagePullSecrets. " + END
    )
    lacks = world(clusters=[cluster()], pods=[waits("CreateContainerConfigError", 'secret "hub" not found')])
    assert (
        'secret "hub" not found. Check that the referenced objects exist in the namespace.'
        in without_first_sentence(lacks)
    )
    ended = {"name": "c", "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "message": "boom"}}}
    crashed = world(clusters=[cluster()], pods=[pod("w-0", containerStatuses=[ended])])
    assert without_first_sentence(crashed) == f"pod w-0, container c: Error, exit code 3: boom. {END}"


def test_nodes_are_shown_by_number_and_faulty_ones_by_name() -> None:
    said = (
        f"0/12 nodes are available: 1 node(s) had untolerated taint {{team: vision, other}}, 3 Insufficient {NPU}, "
        "8 node(s) didn't match Pod's node affinity/selector. preemption: 0/12 nodes are available: 12 Preemption is "
        "not helpful for scheduling."
    )
    pods = [pod("head"), unscheduled("w-0", said), unscheduled("w-1", said), pod("w-2")]
    nodes = [node("a", 14), node("b", ready="Unknown"), node("c", cordoned=True), node("d")]
    assert without_first_sentence(
        world(clusters=[cluster()], pods=pods, nodes=[*nodes, {"metadata": {"name": "e"}}])
    ) == (
        "2 of its 4 pods are scheduled. pod w-0: none of 12 nodes can run it: 1 with an untolerated taint "
        "{team: vision, other}; 3 with too little huawei.com/Ascend910 free; 8 of another class, or without a required "
        "label. While other jobs use the devices, the job releases its nodes after a minute or two, waits and "
        "tries again. The scheduled pods hold their nodes meanwhile; with a queue (scheduling.queueName), all pods "
        "start together. Of the 4 nodes with such devices, b not ready; c cordoned; a (14 of 16 usable) with faulty "
        "devices. If too few nodes have them, the attempt fails unless it starts by 2026-01-01T00:30:00Z "
        "(deadlines.startSeconds)."
    )
    nothing = without_first_sentence(world(clusters=[cluster()], pods=[unscheduled("w-0", said)], nodes=[]))
    assert f"No node has {NPU}; check that the device plug-in runs." in nothing
    assert "hold their nodes meanwhile" not in nothing
    small = without_first_sentence(
        world(clusters=[cluster()], pods=pods, nodes=[node("a", 8, capacity=8), node("b", 4, capacity=4)])
    )
    assert f"A pod requests 16 {NPU}, and no node has more than 8; lower devicesPerNode." in small
    assert "waits and tries again" not in small
    many = without_first_sentence(
        world(clusters=[cluster()], pods=pods, nodes=[node(f"n{i}", ready="False") for i in range(6)])
    )
    assert "n0, n1, n2, n3 and 2 more not ready" in many


def test_the_diagnosis_is_that_of_the_status() -> None:
    found = "no node of the cluster fits class a3: of 2 nodes none offers 16; pod w-0: none of 2 nodes can run it"
    said = f"0/2 nodes are available: 2 Insufficient {NPU}."
    status = {"reason": "PodUnschedulable", "message": found}
    text = without_first_sentence(world(status, clusters=[cluster()], pods=[unscheduled("w-0", said)]))
    assert text.startswith(f"0 of its 4 pods are scheduled. {found}. While other jobs use the devices")


def test_a_volume_is_named() -> None:
    events = [event("FailedMount", 'MountVolume.SetUp failed for volume "data": mount failed', about="w-0")]
    assert without_first_sentence(world(clusters=[cluster()], pods=[pod("w-0")], events=events)) == (
        'Pod w-0 is waiting for a volume: MountVolume.SetUp failed for volume "data": mount failed. ' + END
    )


def test_what_takes_its_time_is_said_to() -> None:
    assert (
        without_first_sentence(world(clusters=[cluster()]))
        == f"KubeRay has not created its pods yet. Check that KubeRay runs. {END}"
    )
    away = world({"reason": "WaitingForKubeRay"}, clusters=[cluster()])
    assert without_first_sentence(away).endswith("Check that KubeRay runs. It waits for KubeRay without a deadline.")
    slow = world({"message": "no pod exists yet"}, clusters=[cluster()], pods=[pod("w-0")])
    assert without_first_sentence(slow) == f"pod w-0 waits for its containers. {END}"
    refused = {"reason": "ConfigMapRefused", "message": "403 Forbidden"}
    assert without_first_sentence(world(refused, clusters=[cluster()], pods=[pod("w-0")])) == (
        f"pod w-0 waits for its containers. 403 Forbidden. {END}"
    )


def pods(existing: int, ready: int) -> list[Json]:
    """Return the pods of a cluster, the first of which are ready."""
    values = ["True"] * ready + ["False"] * (existing - ready)
    return [pod(f"p-{number}", {"type": "Ready", "status": value}) for number, value in enumerate(values)]


def truths(wanted: int, existing: int, ready: int, counted: int, *, was_complete: bool) -> list[str]:
    """Return what may be said of a cluster of one head and `wanted - 1` workers."""
    missing = "are gone" if was_complete else "KubeRay has not created the rest yet"
    return [
        *(["none of the "] if existing == 0 and was_complete else []),
        *(["KubeRay has not created its pods yet"] if existing == 0 and not was_complete else []),
        *([f"pod p-{ready} waits for its containers"] if ready < existing else []),
        *([missing] if 0 < existing == ready < wanted else []),
        *(["pods are ready"] if 0 < ready == existing != 1 else []),
        *(["only pod is ready"] if wanted == existing == ready == 1 else []),
        *(["KubeRay has counted"] if existing == ready >= wanted and counted < wanted - 1 and not was_complete else []),
    ]


CLAIMS = (
    *("none of the ", "has not created its pods", "waits for its", "are gone", "created the rest yet"),
    *("pods are ready", "only pod is ready", "KubeRay has counted"),
)


@pytest.mark.parametrize("was_complete", [False, True])
@pytest.mark.parametrize("wanted", [1, 2, 3, 4])
def test_only_what_is_true_is_said_of_pods(wanted: int, was_complete: bool) -> None:
    for existing in range(wanted + 2):
        for ready in range(existing + 1):
            for counted in range(wanted):
                made = cluster()
                made["spec"]["workerGroupSpecs"][0]["replicas"] = wanted - 1
                made["status"] = {"readyWorkerReplicas": counted}
                intent = STARTING["intent"] | {"attempt": int(was_complete)}
                page = why(world({"intent": intent}, clusters=[made], pods=pods(existing, ready)))
                expected = truths(wanted, existing, ready, counted, was_complete=was_complete)
                assert all(truth in page for truth in expected), (page, expected)
                assert sum(claim in page for claim in CLAIMS) == len(expected), (page, expected)


def test_a_pod_that_is_being_deleted_does_not_count() -> None:
    going = pods(4, 4)
    going[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert without_first_sentence(world(clusters=[cluster()], pods=going)) == (
        f"3 of 4 pods are ready; KubeRay has not created the rest yet; being deleted: p-0. {END}"
    )


def test_a_start_whose_pods_are_ready_says_what_the_driver_does_and_how_long_it_may() -> None:
    submitted: Json = {"reason": "Submitted", "message": "the driver is starting"}
    begun = world(submitted | {"intent": STARTING["intent"] | {"attempt": 1}}, clusters=[cluster()], pods=pods(4, 4))
    assert without_first_sentence(begun) == (
        "all 4 pods are ready. the driver is starting. The attempt is stopped if its first step does not come within "
        "deadlines.startSeconds or deadlines.progressSeconds, whichever is longer, after it has checked the nodes and "
        "loaded the model."
    )


def test_describe_reads_what_the_state_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = {"rljobs.rljob.dev": job(status=STARTING), "rayclusters.ray.io": {"items": [cluster()]}}
    said = f"0/4 nodes are available: 4 Insufficient {NPU}."
    answers |= {"pods": {"items": [unscheduled("w-0", said)]}, "events.events.k8s.io": {"items": []}}
    for name, answer in answers.items():
        (tmp_path / name).write_text(json.dumps(answer))
    script = tmp_path / "kubectl"
    script.write_text(
        '#!/bin/sh\ncd "$(dirname "$0")"\necho "$@" >>words\n[ -f "$2" ] && exec cat "$2"\n'
        'echo "Error from server (Forbidden): nodes is forbidden" >&2; exit 1\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    assert main(["describe", "sums", "--context", "c"]) == 0
    page = capsys.readouterr().out
    assert "4 with too little huawei.com/Ascend910 free" in " ".join(page.split())
    place = "--output json --namespace team --context c"
    assert (tmp_path / "words").read_text().splitlines() == [
        "get rljobs.rljob.dev sums --output json --context c",
        f"get rayclusters.ray.io --selector rljob.dev/job-uid={UID} {place}",
        f"get pods --selector ray.io/cluster={CLUSTER} {place}",
        f"get events.events.k8s.io --field-selector type=Warning {place}",
        f"get nodes {place}",
    ]


def test_a_job_that_failed_is_exit_code_1_of_describe(kubectl: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (kubectl / "answer").write_text(json.dumps(job(status={"state": "Failed", "reason": "Stalled"}) | {"items": []}))
    assert main(["describe", "sums"]) == 1
    assert "Failed (Stalled)" in capsys.readouterr().out
