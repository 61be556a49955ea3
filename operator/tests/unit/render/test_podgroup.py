"""Volcano's PodGroup: as large as the cluster, with the keys of Ascend's plug-in, and only existing fields."""

from __future__ import annotations

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed

from rljob.launchers import LAUNCHER
from rljob.render import configmap
from rljob.render.podgroup import NEWEST_FIELDS, TOPOLOGY, Gang, build_pod_group, stated_gang
from rljob.render.raycluster import build_raycluster

VOLCANO: Json = {"scheduling": {"gang": "Volcano"}}
SUPER_POD: Json = merged(
    VOLCANO,
    {
        "accelerator": {"class": "atlas-a3-superpod"},
        "workerGroups": [{"name": "trainer", "nodes": 8, "devicesPerNode": 16}],
        "scheduling": {"topology": {"nodesPerSuperPodBlock": 4}},
    },
)


def made(*changes: Json, fields: frozenset[str] = NEWEST_FIELDS) -> tuple[Json, Json]:
    """Return the RayCluster and its PodGroup."""
    spec = small_spec()
    for change in changes:
        spec = merged(spec, change)
    cluster = build_raycluster(IDENTITY, typed(spec), 2, "digest")
    return cluster, build_pod_group(IDENTITY, typed(spec), 2, cluster, fields)


def pods(cluster: Json) -> list[Json]:
    spec = cluster["spec"]
    return [spec["headGroupSpec"]["template"], *(workers["template"] for workers in spec["workerGroupSpecs"])]


def asking(cpu: str, **more: object) -> Json:
    return {"name": "x", "image": "x", "resources": {"requests": {"cpu": cpu}}, **more}


def test_the_group_is_as_large_as_the_cluster_and_has_its_name() -> None:
    cluster, pod_group = made(VOLCANO, group({"nodes": 3, "template": {"cpu": "4", "memory": "8Gi"}}))
    assert pod_group["metadata"]["name"] == cluster["metadata"]["name"]
    assert pod_group["metadata"]["ownerReferences"] == cluster["metadata"]["ownerReferences"]
    assert pod_group["metadata"]["labels"]["rljob.dev/cluster-generation"] == "2"
    # The head contains Ray, 100m and 256Mi, and the exporter, 20m and 96Mi.
    resources = {"cpu": "12120m", "memory": "24928Mi", "huawei.com/Ascend910": "6"}
    assert pod_group["spec"] == {"minMember": 4, "minResources": resources}


def test_every_pod_is_a_member_and_no_task_has_a_name_that_ascends_plug_in_knows() -> None:
    cluster, _ = made(VOLCANO, group({"name": "scheduler"}))
    assert [pod["spec"]["schedulerName"] for pod in pods(cluster)] == ["volcano", "volcano"]
    marks = [pod["metadata"]["annotations"] for pod in pods(cluster)]
    assert {mark["scheduling.k8s.io/group-name"] for mark in marks} == {cluster["metadata"]["name"]}
    assert [mark["volcano.sh/task-spec"] for mark in marks] == ["head", "workers-scheduler"]


def test_a_scheduler_of_the_users_choice_stays() -> None:
    cluster, _ = made(VOLCANO, {"podSpecPatch": {"workers": {"schedulerName": "volcano-2"}}})
    assert [pod["spec"]["schedulerName"] for pod in pods(cluster)] == ["volcano", "volcano-2"]


def test_a_queue_of_volcano_is_none_of_kueues() -> None:
    cluster, pod_group = made(VOLCANO, {"scheduling": {"queueName": "research", "priorityClassName": "high"}})
    assert pod_group["spec"]["queue"] == "research"
    assert pod_group["spec"]["priorityClassName"] == "high"
    assert cluster["metadata"]["labels"]["volcano.sh/queue-name"] == "research"
    assert "kueue.x-k8s.io/queue-name" not in cluster["metadata"]["labels"]
    assert "suspend" not in cluster["spec"]


@pytest.mark.parametrize(
    ("scheduling", "gang"),
    [
        ({}, Gang.NONE),
        ({"gang": "None"}, Gang.NONE),
        ({"queueName": "a"}, Gang.KUEUE),
        ({"queueName": "a", "gang": "Kueue"}, Gang.KUEUE),
        ({"queueName": "a", "gang": "Volcano"}, Gang.VOLCANO),
        ({"gang": "Volcano"}, Gang.VOLCANO),
    ],
)
def test_who_it_is_by_the_spec_alone(scheduling: Json, gang: Gang) -> None:
    assert stated_gang(typed(small_spec({"scheduling": scheduling}))) is gang


def test_blocks_of_a_super_pod_are_counted_in_devices_on_group_and_pods_alike() -> None:
    cluster, pod_group = made(SUPER_POD)
    for metadata in (pod_group["metadata"], *(pod["metadata"] for pod in pods(cluster))):
        assert metadata["annotations"]["sp-block"] == "64"
        assert metadata["annotations"]["huawei.com/schedule_policy"] == "chip2-node16-sp"
        assert metadata["labels"]["super-pod-affinity"] == "soft"
    assert pods(cluster)[0]["metadata"]["annotations"]["huawei.com/skip-ascend-plugin"] == "enabled"


def test_required_blocks_are_never_broken_up() -> None:
    cluster, pod_group = made(SUPER_POD, {"scheduling": {"topology": {"mode": "Required"}}})
    found = [pod_group, *pods(cluster)]
    assert all("super-pod-affinity" not in item["metadata"]["labels"] for item in found)


def test_a_class_outside_of_super_pods_has_no_blocks() -> None:
    _, pod_group = made(VOLCANO, {"scheduling": {"topology": {"nodesPerSuperPodBlock": 1}}})
    assert "sp-block" not in pod_group["metadata"]["annotations"]
    _, pod_group = made(SUPER_POD, {"accelerator": {"class": "atlas-a3"}})
    assert "sp-block" not in pod_group["metadata"]["annotations"]


@pytest.mark.parametrize(
    ("level", "mode", "fields", "topology"),
    [
        ("2", "Preferred", {TOPOLOGY}, {"mode": "soft", "highestTierAllowed": 2}),
        ("2", "Required", NEWEST_FIELDS, {"mode": "hard", "highestTierAllowed": 2}),
        (
            "volcano.sh/hypernode",
            "Required",
            NEWEST_FIELDS,
            {"mode": "hard", "highestTierName": "volcano.sh/hypernode"},
        ),
        ("volcano.sh/hypernode", "Required", {TOPOLOGY}, None),
        ("2", "Required", {"minMember"}, None),
        (None, "Required", NEWEST_FIELDS, None),
    ],
)
def test_a_level_is_a_tier_of_volcano_where_its_group_knows_tiers(
    level: str | None, mode: str, fields: frozenset[str], topology: Json | None
) -> None:
    _, pod_group = made(VOLCANO, {"scheduling": {"topology": {"level": level, "mode": mode}}}, fields=frozenset(fields))
    assert pod_group["spec"].get(TOPOLOGY) == topology


@pytest.mark.parametrize(
    ("template", "cpu"),
    [
        ({"cpu": "4"}, "4120m"),
        ({"cpu": "4", "initContainers": [asking("3")]}, "4120m"),
        ({"cpu": "4", "initContainers": [asking("6500m")]}, "6620m"),
        ({"cpu": "4", "sidecars": [asking("1")], "initContainers": [asking("5")]}, "6120m"),
        ({"cpu": "4", "sidecars": [asking("2")], "initContainers": [asking("1")]}, "6120m"),
        ({"cpu": "4", "sidecars": [{"name": "y", "image": "y", "resources": {"limits": {"cpu": "1"}}}]}, "5120m"),
        ({"cpu": "4", "sidecars": [{"name": "y", "image": "y"}]}, "4120m"),
        ({"cpu": "3880m"}, "4"),
    ],
)
def test_what_a_pod_asks_for_is_what_the_scheduler_counts(template: Json, cpu: str) -> None:
    _, pod_group = made(VOLCANO, group({"template": template}))
    assert pod_group["spec"]["minResources"]["cpu"] == cpu


def test_the_group_is_frozen_with_the_cluster_and_only_where_there_is_one() -> None:
    spec = typed(small_spec())
    config = LAUNCHER(spec).job_config(IDENTITY, spec, 1)
    assert configmap.read_pod_group(configmap.build_cluster_config(IDENTITY, spec, 1, config)) is None
    found = configmap.Circumstances(gang=Gang.VOLCANO, pod_group_fields=NEWEST_FIELDS)
    frozen = configmap.build_cluster_config(IDENTITY, spec, 1, config, found)
    cluster = build_raycluster(IDENTITY, spec, 1, config.digest(), gang=Gang.VOLCANO)
    assert configmap.read_raycluster(frozen) == cluster
    assert configmap.read_pod_group(frozen) == build_pod_group(IDENTITY, spec, 1, cluster, NEWEST_FIELDS)
