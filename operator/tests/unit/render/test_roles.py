"""Two groups of workers: each with its own size, nodes and requests, and known by its role to Ray and to selectors."""

from __future__ import annotations

import json
from typing import Any

import pytest
from builders import IDENTITY, Json, apart, group, judged, merged, small_spec, typed

from rljob.render import configmap
from rljob.render.accelerator_table import AcceleratorTable, read_table
from rljob.render.accelerators import BUILT_IN, SUPER_POD, built_in_document
from rljob.render.evaluation import evaluation_document
from rljob.render.placement import requires_domain
from rljob.render.podgroup import NEWEST_FIELDS, build_pod_group
from rljob.render.raycluster import build_raycluster
from rljob.render.topology import ANYWHERE, BLOCK_LEVEL, BLOCK_SIZE, REQUIRED

NPU = "huawei.com/Ascend910"
SIZES = apart({"nodes": 4, "devicesPerNode": 16}, {"nodes": 2, "devicesPerNode": 16})
A3 = merged(small_spec(SIZES), {"accelerator": {"class": "atlas-a3-superpod"}})
CLUSTER = {"ray.io/cluster": "sums-0a1b2-1", "ray.io/node-type": "worker"}
LEVELS = [SUPER_POD, "kubernetes.io/hostname"]
PLACED = AcceleratorTable(read_table(built_in_document(), {"atlas-a3-superpod": {"topologyLevels": LEVELS}}))


def groups(spec: Json, accelerators: AcceleratorTable = BUILT_IN) -> list[Any]:
    """Return head and worker groups of the rendered cluster."""
    made = build_raycluster(IDENTITY, typed(spec, accelerators), 1, "digest")["spec"]
    return [made["headGroupSpec"], *made["workerGroupSpecs"]]


def wish(spec: Json, **topology: object) -> Json:
    return merged(spec, {"scheduling": {"topology": topology}})


def test_ray_and_selectors_know_workers_by_their_role() -> None:
    offers = [json.loads(json.loads(each["rayStartParams"]["resources"])) for each in groups(A3)]
    assert offers == [{"NPU": 0}, {"NPU": 16, "rljob_trainer": 1}, {"NPU": 16, "rljob_rollout": 1}]
    marks = [each["template"]["metadata"]["labels"].get("rljob.dev/role") for each in groups(A3)]
    assert marks == [None, "trainer", "rollout"]
    head, both = groups(small_spec())
    assert json.loads(json.loads(both["rayStartParams"]["resources"])) == {"NPU": 2}
    assert all("rljob.dev/role" not in each["template"]["metadata"]["labels"] for each in (head, both))


def test_workers_that_train_and_generate_have_a_role_beside_a_judge() -> None:
    _, trainer, judge = groups(small_spec(judged()))
    assert json.loads(json.loads(trainer["rayStartParams"]["resources"])) == {"NPU": 2, "rljob_trainer": 1}
    assert json.loads(json.loads(judge["rayStartParams"]["resources"])) == {"NPU": 2, "rljob_judge": 1}
    marks = [each["template"]["metadata"]["labels"]["rljob.dev/role"] for each in (trainer, judge)]
    assert marks == ["trainer", "judge"]


def test_workers_without_which_a_run_cannot_continue_ask_it_to_save_before_they_end() -> None:
    saved = {"checkpoint": {"path": "/data/saves", "everySteps": 10}}

    def asks(spec: Json) -> list[bool]:
        made = [each["template"]["spec"]["containers"][0] for each in groups(spec)]
        return ["preStop" in each.get("lifecycle", {}) for each in made]

    assert asks(small_spec(merged(apart(), saved))) == [True, True, False], "head, trainer, rollout"
    assert asks(small_spec(merged(judged(), saved))) == [True, True, True], "head, trainer, judge"


def test_each_group_has_the_size_of_its_own_devices_and_template() -> None:
    change = apart({"devicesPerNode": 16}, {"devicesPerNode": 4, "template": {"nodeSelector": {"pool": "b"}}})
    _, train, generate = groups(merged(A3, change))
    sizes = [each["template"]["spec"]["containers"][0]["resources"]["limits"] for each in (train, generate)]
    assert sizes == [
        {"cpu": "304", "memory": "1400Gi", NPU: "16"},
        {"cpu": "76", "memory": "358400Mi", NPU: "4"},
    ]
    assert [each["groupName"] for each in (train, generate)] == ["train", "generate"]
    assert [each["replicas"] for each in groups(A3)[1:]] == [4, 2]
    assert [each["template"]["spec"]["nodeSelector"] for each in (train, generate)] == [{}, {"pool": "b"}]


def test_every_worker_has_the_priority_of_the_job() -> None:
    spec = merged(A3, {"scheduling": {"priorityClassName": "high"}})
    assert [each["template"]["spec"]["priorityClassName"] for each in groups(spec)] == ["high"] * 3


def test_the_head_has_the_volumes_of_the_workers_that_train() -> None:
    shared = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    of_trainer, of_rollout = (
        groups(merged(A3, apart({"template": shared}))),
        groups(merged(A3, apart(None, {"template": shared}))),
    )
    names = [{volume["name"] for volume in made[0]["template"]["spec"]["volumes"]} for made in (of_trainer, of_rollout)]
    assert ["data" in each for each in names] == [True, False]


def test_a_pod_group_of_volcano_has_the_pods_of_both_groups() -> None:
    spec = merged(A3, apart({"nodes": 4, "devicesPerNode": 16}, {"nodes": 1, "devicesPerNode": 8}))
    spec = wish(merged(spec, {"scheduling": {"gang": "Volcano"}}), nodesPerSuperPodBlock=1)
    cluster = build_raycluster(IDENTITY, typed(spec), 1, "digest")
    pod_group = build_pod_group(IDENTITY, typed(spec), 1, cluster, NEWEST_FIELDS)
    assert pod_group["spec"]["minMember"] == 1 + 4 + 1
    assert pod_group["spec"]["minResources"][NPU] == str(4 * 16 + 8)
    assert pod_group["metadata"]["annotations"]["sp-block"] == "16", "a block has whole nodes"
    tasks = [each["template"]["metadata"]["annotations"]["volcano.sh/task-spec"] for each in groups(spec)]
    assert tasks == ["head", "workers-train", "workers-generate"]


def near(spec: Json) -> list[Json]:
    """Return what the workers of each group require to be near to."""
    found = [each["template"]["spec"].get("affinity", {}).get("podAffinity", {}) for each in groups(spec)[1:]]
    return [each.get("requiredDuringSchedulingIgnoredDuringExecution", [{}])[0] for each in found]


def of(labels: Json, level: str) -> Json:
    return {"labelSelector": {"matchLabels": labels}, "topologyKey": level}


def test_without_a_queue_a_domain_holds_the_job_and_a_block_holds_a_group() -> None:
    assert near(wish(A3, mode="Required")) == [of(CLUSTER, SUPER_POD)] * 2
    blocks = wish(merged(A3, apart({"nodes": 2}, {"nodes": 2})), mode="Required", nodesPerSuperPodBlock=2)
    roles = [{"rljob.dev/role": "trainer"}, {"rljob.dev/role": "rollout"}]
    assert near(blocks) == [of(CLUSTER | role, SUPER_POD) for role in roles]
    one = wish(A3, mode="Required", nodesPerSuperPodBlock=2)
    assert near(one) == [{}, of(CLUSTER | roles[1], SUPER_POD)], "affinity knows no two blocks of a group"
    assert requires_domain(typed(one))
    assert not requires_domain(typed(wish(A3, mode="Required", nodesPerSuperPodBlock=1)))


def asked(spec: Json, accelerators: AcceleratorTable = BUILT_IN) -> list[Json]:
    """Return what Kueue reads from the pods of each group."""
    marks = [each["template"]["metadata"]["annotations"] for each in groups(spec, accelerators)]
    return [{name: value for name, value in each.items() if name.startswith("kueue")} for each in marks]


def test_kueue_is_asked_for_the_places_of_each_group() -> None:
    queued = merged(A3, {"scheduling": {"queueName": "cards"}})
    block = {BLOCK_LEVEL: SUPER_POD, BLOCK_SIZE: "2"}
    assert asked(wish(queued, nodesPerSuperPodBlock=2)) == [{}, block, block]
    own = merged(queued, apart(None, {"template": {"annotations": {REQUIRED: SUPER_POD}}}))
    assert asked(own, PLACED) == [{}, {ANYWHERE: "true"}, {REQUIRED: SUPER_POD}]


def test_a_snapshot_names_roles_only_where_they_are_apart() -> None:
    def roles(spec: Json) -> list[object]:
        return [each.get("roles") for each in configmap.spec_document(typed(spec))["workerGroups"]]

    assert roles(small_spec()) == [None]
    assert roles(small_spec(group({"roles": ["Rollout", "Trainer"]}))) == [None]
    assert roles(A3) == [["Trainer"], ["Rollout"]]


@pytest.mark.parametrize("first", ["train", "generate"])
def test_an_evaluation_runs_on_workers_like_those_that_train(first: str) -> None:
    spec = merged(A3, {"checkpoint": {"path": "/data/saves", "everySteps": 10}, "evaluation": {}})
    spec["workerGroups"].sort(key=lambda each: each["name"] != first)
    made = typed(spec)
    assert made.evaluation is not None
    (workers,) = evaluation_document(made, made.evaluation, 10)["workerGroups"]
    assert (workers["name"], workers["nodes"]) == ("train", 4)
    assert "roles" not in workers


def test_an_evaluation_takes_the_judge_along() -> None:
    made = typed(
        merged(small_spec(judged()), {"checkpoint": {"path": "/data/saves", "everySteps": 10}, "evaluation": {}})
    )
    assert made.evaluation is not None
    document = evaluation_document(made, made.evaluation, 10)
    assert [(each["name"], each.get("roles")) for each in document["workerGroups"]] == [
        ("trainer", None),
        ("judge", ["Judge"]),
    ]
    assert document["reward"]["judge"]["path"] == "/judge"
