"""What is recorded of an ended attempt."""

from __future__ import annotations

from typing import Any

from builders import CLUSTER_NAME, Json, cluster, pod, status_finished, status_training

from rljob.api.status import RLJobStatus
from rljob.core.attempts.evidence import PODS_MAX, TEXT_BYTES, WARNINGS_MAX, evidence_of
from rljob.core.observed import UNSEEN, Manifest, Unseen
from rljob.render import labels

ENDED = RLJobStatus.model_validate(status_finished())
TRAINED = RLJobStatus.model_validate(status_training())


def entry(
    pods: tuple[Manifest, ...] | Unseen = (),
    warnings: tuple[Manifest, ...] | Unseen = (),
    ray_cluster: Manifest | None = None,
    status: RLJobStatus = ENDED,
) -> dict[str, Any]:
    return evidence_of(status.attempts[-1], status, ray_cluster, pods, warnings)


def event(name: str = CLUSTER_NAME, kind: str = "RayCluster", **fields: object) -> Json:
    return {"metadata": {}, "regarding": {"kind": kind, "name": name}, "reason": "Bad", "note": "why", **fields}


def test_the_record_of_the_attempt_is_kept_whole() -> None:
    told = entry()
    assert told["attempt"]["reason"] == "DriverFailed"
    assert told["attempt"]["endTime"] == "2026-01-01T12:00:00Z"
    assert (told["pods"], told["warnings"]) == ([], [])
    assert "progress" not in told


def test_its_last_figures_are_kept() -> None:
    assert entry(status=TRAINED)["progress"]["summary"] == "3/40"


def test_what_could_not_be_looked_at_is_absent() -> None:
    assert not {"pods", "warnings", "rayCluster"} & set(entry(UNSEEN, UNSEEN))


def test_the_cluster_says_what_kuberay_said_of_it() -> None:
    found = cluster(ready=1) | {"status": {"state": "failed", "reason": "x" * 900, "readyWorkerReplicas": 0}}
    told = entry(ray_cluster=found)["rayCluster"]
    assert (told["name"], told["state"], told["readyWorkerReplicas"]) == (CLUSTER_NAME, "failed", 0)
    assert len(told["reason"].encode()) <= TEXT_BYTES


def test_the_cluster_says_whose_runtime_it_had() -> None:
    found = cluster(annotations={labels.RUNTIME_IMAGE: "operator:1"})
    assert entry(ray_cluster=found)["rayCluster"]["runtimeImage"] == "operator:1"
    assert "runtimeImage" not in entry(ray_cluster=cluster(annotations={}))["rayCluster"]


def test_of_a_healthy_pod_its_name_and_node_are_kept() -> None:
    healthy = pod(phase="Running", containerStatuses=[{"name": "ray", "state": {"running": {}}}]) | {
        "spec": {"nodeName": "n1"}
    }
    assert entry((healthy,))["pods"] == [{"name": "head", "node": "n1", "phase": "Running"}]


def test_pods_with_trouble_come_first_with_what_the_kubelet_said() -> None:
    killed = pod(
        "worker",
        phase="Failed",
        reason="Evicted",
        conditions=[
            {"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI", "message": "drained"},
            {"type": "Ready", "status": "False", "reason": "PodFailed"},
            {"type": "PodScheduled", "status": "True"},
        ],
        initContainerStatuses=[{"name": "fetch", "state": {"terminated": {"exitCode": 0}}}],
        containerStatuses=[
            {"name": "ray", "state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "restartCount": 0},
            {"name": "tool", "state": {"running": {}}, "lastState": {"terminated": {"exitCode": 0}}, "restartCount": 2},
            {"name": "late", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "m" * 900}}},
        ],
    )
    first, second = entry((pod("a-head"), killed))["pods"]
    assert (first["name"], second["name"]) == ("worker", "a-head")
    assert first["reason"] == "Evicted"
    assert [found["type"] for found in first["conditions"]] == ["DisruptionTarget", "Ready"]
    ray, tool, late = first["containers"]
    assert ray == {"name": "ray", "exitCode": 137, "restarts": 0, "reason": "OOMKilled"}
    assert tool == {"name": "tool", "exitCode": 0, "restarts": 2}
    assert (late["reason"], len(late["message"].encode())) == ("ImagePullBackOff", TEXT_BYTES)


def test_of_very_many_pods_some_are_counted_only() -> None:
    told = entry(tuple(pod(f"w{number:03}") for number in range(PODS_MAX + 5)))
    assert (len(told["pods"]), told["podsLeftOff"]) == (PODS_MAX, 5)


def test_warnings_about_the_cluster_and_its_pods_are_kept() -> None:
    warnings: tuple[Json, ...] = (
        event(),
        event(f"{CLUSTER_NAME}-head-x", "Pod"),
        event("cut-at-the-front", "Pod"),
        event(f"{CLUSTER_NAME}0", "RayCluster"),
        event(f"{CLUSTER_NAME}-head-x", "Service"),
        event("other-head", "Pod"),
        {"metadata": {}},
    )
    told = entry((pod("cut-at-the-front"),), warnings)["warnings"]
    assert [found["about"] for found in told] == [
        f"RayCluster {CLUSTER_NAME}",
        f"Pod {CLUSTER_NAME}-head-x",
        "Pod cut-at-the-front",
    ]
    assert told[0] == {"about": f"RayCluster {CLUSTER_NAME}", "reason": "Bad", "note": "why"}


def test_the_latest_warnings_are_kept_by_the_time_at_which_they_were_seen_last() -> None:
    many = [event(eventTime=f"2026-01-01T00:00:{second:02}Z") for second in range(WARNINGS_MAX + 3)]
    old = event(series={"count": 7, "lastObservedTime": "2026-01-01T00:01:00Z"}, eventTime="2025-01-01T00:00:00Z")
    legacy = event(deprecatedLastTimestamp="2026-01-01T00:02:00Z", deprecatedCount=4)
    told = entry((), (legacy, old, *many))["warnings"]
    assert len(told) == WARNINGS_MAX
    assert [(found["time"], found["count"]) for found in told[-2:]] == [
        ("2026-01-01T00:01:00Z", 7),
        ("2026-01-01T00:02:00Z", 4),
    ]


def test_warnings_are_kept_where_pods_could_not_be_looked_at() -> None:
    assert len(entry(UNSEEN, (event(f"{CLUSTER_NAME}-head-x", "Pod"),))["warnings"]) == 1
