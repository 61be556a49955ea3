"""Whether head and workers of a job find nodes that are large enough, and what is said before pods exist."""

from __future__ import annotations

from typing import Any

import pytest
from builders import Json, apart, group, merged, small_spec, typed

from rljob.core.scheduling.discovery import Nodes, missing_hardware, node_facts
from rljob.render.accelerators import BUILT_IN

WHOLE = small_spec(group({"nodes": 2, "devicesPerNode": 16}))
A3 = merged(WHOLE, {"accelerator": {"class": "atlas-a3"}, "head": {"template": {"cpu": "12", "memory": "64Gi"}}})
RESERVED = {"key": "npu", "value": "training", "effect": "NoSchedule"}


def node(cpu: str = "320", memory: str = "1536Gi", *taints: Json, npu: bool = True) -> Json:
    devices = {"huawei.com/Ascend910": "16"} if npu else {}
    return {
        "metadata": {"name": "n", "labels": {"servertype": "Ascend910A3-20"} if npu else {}},
        "spec": {"taints": list(taints)},
        "status": {"allocatable": {"cpu": cpu, "memory": memory, **devices}},
    }


def told(spec: Json, *nodes: Json) -> dict[str, str]:
    facts = tuple(node_facts(each, BUILT_IN) for each in nodes)
    return {found.field: found.message for found in missing_hardware(typed(spec), Nodes(facts))}


def with_template(path: str, **fields: Any) -> Json:  # noqa: ANN401 - of a template
    if path == "head":
        return merged(A3, {"head": {"template": fields}})
    return merged(A3, group({"nodes": 2, "devicesPerNode": 16, "template": fields}))


WORKERS, HEAD = "spec.workerGroups[0].template", "spec.head.template"
SMALL = node("192", "1000Gi")


@pytest.mark.parametrize(
    ("nodes", "field", "words"),
    [
        ((node(), node()), None, ""),
        (
            (SMALL, SMALL),
            WORKERS,
            (
                "no node of class atlas-a3 has the 304 CPUs and 1400Gi that a worker requests; the largest offers "
                "192 CPUs and 1000Gi; set cpu and memory of workerGroups[0].template"
            ),
        ),
        (
            (node(), SMALL),
            WORKERS,
            "1 nodes of class atlas-a3 have the 304 CPUs and 1400Gi that a worker requests, but",
        ),
        ((node("319500m"), node("303500m")), WORKERS, "1 nodes of class atlas-a3 have"),
        (
            (node("320", "1536Gi", RESERVED), node("320", "1536Gi", RESERVED)),
            WORKERS,
            (
                "no node of class atlas-a3 takes a worker, which does not tolerate the taint npu=training:NoSchedule; "
                "set tolerations of workerGroups[0].template"
            ),
        ),
        (
            (node("312"), node("312")),
            HEAD,
            (
                "no node has the 12 CPUs and 64Gi of the head beside a worker with 304 CPUs and 1400Gi, and the job "
                "takes every node that fits a worker; the largest offers 312 CPUs and 1536Gi; set less cpu and"
            ),
        ),
        ((node("312"), node("312"), node("16", "128Gi", npu=False)), None, ""),
        ((node("312"), node("312"), node("312")), None, ""),
        # A node that does not say what it has may have enough.
        (({**node(), "status": {"allocatable": {"huawei.com/Ascend910": "16"}}},) * 2, None, ""),
    ],
)
def test_what_never_fits_is_told_with_the_largest_node(nodes: tuple[Json, ...], field: str | None, words: str) -> None:
    found = told(A3, *nodes)
    assert list(found) == ([field] if field else [])
    assert words in "".join(found.values())


@pytest.mark.parametrize(
    ("toleration", "is_tolerated"),
    [
        ({"key": "npu"}, True),
        ({}, True),
        ({"key": "npu", "operator": "Equal", "value": "training", "effect": "NoSchedule"}, True),
        ({"key": "npu", "operator": "Equal", "value": "serving"}, False),
        ({"key": "npu", "effect": "NoExecute"}, False),
        ({"key": "gpu"}, False),
    ],
)
def test_a_taint_is_tolerated_as_the_scheduler_judges_it(toleration: Json, is_tolerated: bool) -> None:
    spec = with_template("workers", tolerations=[toleration])
    tainted = node("320", "1536Gi", RESERVED)
    assert (told(spec, tainted, tainted, node("16", "128Gi", npu=False)) == {}) == is_tolerated


@pytest.mark.parametrize(
    "taint",
    [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "npu", "effect": "PreferNoSchedule"},
        {"key": "huawei.com/Ascend910", "effect": "NoSchedule"},
    ],
)
def test_taints_that_end_or_that_admission_tolerates_keep_no_worker_off(taint: Json) -> None:
    tainted = node("320", "1536Gi", taint)
    assert WORKERS not in told(A3, tainted, tainted)


def test_the_head_is_told_when_no_node_takes_it() -> None:
    huge = with_template("head", cpu="400")
    assert told(huge, node(), node())[HEAD].startswith("no node has the 400 CPUs and 64Gi that the head requests")
    tainted = node("320", "1536Gi", RESERVED)
    tolerant = with_template("workers", tolerations=[{"key": "npu"}])
    assert told(tolerant, tainted, tainted)[HEAD].endswith("npu=training:NoSchedule; set tolerations of head.template")


@pytest.mark.parametrize(
    ("spec", "nodes"),
    [
        (merged(A3, {"podSpecPatch": {"workers": "tolerations: [{operator: Exists}]"}}), (SMALL, SMALL)),
        (merged(with_template("head", cpu="400"), {"podSpecPatch": {"head": "hostUsers: true"}}), (node(), node())),
        (with_template("head", cpu="400", nodeSelector={"team": "a"}), (node(), node())),
        (merged(A3, {"scheduling": {"queueName": "team"}}), (node("320", "1536Gi", RESERVED),) * 2),
    ],
)
def test_nothing_is_said_of_what_a_patch_a_selector_or_a_queue_may_change(spec: Json, nodes: tuple[Json, ...]) -> None:
    assert told(spec, *nodes) == {}


PAIR = merged(A3, apart({"nodes": 1, "devicesPerNode": 16}, {"nodes": 1, "devicesPerNode": 4}))
SECOND = "spec.workerGroups[1].template"


def pair(trainer: Json | None = None, rollout: Json | None = None, **changes: Json) -> Json:
    groups = apart({"devicesPerNode": 16} | (trainer or {}), {"devicesPerNode": 4} | (rollout or {}))
    return merged(PAIR, groups, changes)


@pytest.mark.parametrize(
    ("spec", "nodes", "field", "words"),
    [
        (PAIR, (node(), node()), None, ""),
        (pair(rollout={"template": {"cpu": "400"}}), (node(), node()), SECOND, "set cpu and memory of workerGroups[1]"),
        (
            pair(rollout={"template": {"cpu": "200"}}),
            (node(), SMALL, SMALL),
            "spec.workerGroups",
            (
                "nodes of class atlas-a3 take 1 workers of all groups together, but the job needs 1 with 304 CPUs and "
                "1400Gi and 1 with 200 CPUs and 350Gi; add nodes, or lower"
            ),
        ),
        (
            pair(rollout={"template": {"cpu": "302"}}),
            (node("312"), node("312")),
            HEAD,
            (
                "beside a worker with 304 CPUs and 1400Gi or with 302 CPUs and 350Gi, and the job takes every node "
                "that fits a worker; the largest offers 312 CPUs and 1536Gi; set less cpu and memory in one of the t"
            ),
        ),
        (PAIR, (node("312"), node("100", "500Gi")), None, ""),
        (pair(podSpecPatch={"workers": "hostUsers: true"}), (SMALL, SMALL), None, ""),
        (pair({"devicesPerNode": 8}), (node(),), None, ""),
        (pair({"devicesPerNode": 8}), (node("220"),), "spec.workerGroups", "take 1 workers of all groups together"),
        (pair({"devicesPerNode": 8}, accelerator={"class": "cpu"}), (node("2"),), HEAD, "that the head requests"),
    ],
)
def test_workers_of_both_groups_and_the_head_find_nodes(
    spec: Json, nodes: tuple[Json, ...], field: str | None, words: str
) -> None:
    found = told(spec, *nodes)
    assert list(found) == ([field] if field else [])
    assert words in "".join(found.values())


def test_what_is_remembered_of_nodes_serves_jobs_that_ask_for_the_same_and_no_others() -> None:
    facts = tuple(node_facts(each, BUILT_IN) for each in (node(), node("320", "1536Gi", RESERVED)))
    shared = Nodes(facts)
    changes: list[Json] = [
        {"model": {"path": "/data/other"}},
        {"scheduling": {"queueName": "q"}},
        {"head": {"template": {"cpu": "900"}}},
        group({"nodes": 3, "devicesPerNode": 16}),
        group({"nodes": 2, "devicesPerNode": 16, "template": {"cpu": "900"}}),
        group({"nodes": 2, "devicesPerNode": 16, "template": {"tolerations": [{"operator": "Exists"}]}}),
        {"podSpecPatch": {"workers": {"hostPID": False}, "head": {"hostPID": False}}},
        {"accelerator": {"class": "atlas-a2"}},
    ]
    found = [missing_hardware(typed(A3), shared)]
    for change in changes:
        spec = typed(merged(A3, change))
        found.append(missing_hardware(spec, shared))
        assert found[-1] == missing_hardware(spec, Nodes(facts))
    assert found[1] is found[0], "the path of the model says nothing about nodes"
    assert len(set(found[1:])) == 5
