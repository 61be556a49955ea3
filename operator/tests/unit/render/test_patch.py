"""podSpecPatch: a strategic merge as in Kubernetes, and every patch without meaning is detected."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from builders import Json
from hypothesis import given
from hypothesis import strategies as st

from rljob.render.patch import RULES, TABLE, apply_patch, patch_problems

POD: Json = {
    "restartPolicy": "Never",
    "nodeSelector": {"zone": "a", "disk": "ssd"},
    "tolerations": [{"key": "npu", "operator": "Exists"}],
    "volumes": [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "8Gi"}},
        {"name": "models", "hostPath": {"path": "/models"}},
    ],
    "containers": [
        {
            "name": "ray-worker",
            "command": ["a", "b"],
            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
            "resources": {"limits": {"memory": "1Gi"}},
            "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
        },
        {"name": "exporter"},
    ],
}
RAY = "ray-worker"


def ray(patch: Json) -> Json:
    """Return the Ray container after applying a patch to it."""
    patched = apply_patch(POD, {"containers": [{"name": RAY, **patch}]})
    assert [container["name"] for container in patched["containers"]] == [RAY, "exporter"]
    found: Json = patched["containers"][0]
    return found


def test_no_patch_changes_nothing() -> None:
    assert apply_patch(POD, None) == POD


def test_maps_merge_deeply_and_other_values_are_replaced() -> None:
    patched = apply_patch(
        POD, {"nodeSelector": {"zone": "b"}, "schedulerName": "volcano", "dnsConfig": {"options": []}}
    )
    assert patched["nodeSelector"] == {"zone": "b", "disk": "ssd"}
    assert (patched["schedulerName"], patched["dnsConfig"]) == ("volcano", {"options": []})


def test_a_container_is_merged_by_its_name_and_its_lists_by_their_keys() -> None:
    found = ray(
        {
            "command": ["c"],
            "env": [{"name": "B", "value": "3"}, {"name": "C", "value": "4"}],
            "resources": {"limits": {"cpu": "2"}},
            "volumeMounts": [{"mountPath": "/models", "subPath": "x"}],
            "ports": [{"containerPort": 1}],
        }
    )
    assert found["command"] == ["c"]
    assert found["env"] == [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}, {"name": "C", "value": "4"}]
    assert found["resources"] == {"limits": {"memory": "1Gi", "cpu": "2"}}
    assert found["volumeMounts"] == [{"name": "models", "mountPath": "/models", "readOnly": True, "subPath": "x"}]
    assert found["ports"] == [{"containerPort": 1}]


def test_a_container_that_is_not_there_is_added_behind_the_others() -> None:
    patched = apply_patch(POD, {"containers": [{"name": "more"}], "initContainers": [{"name": "first"}]})
    assert [container["name"] for container in patched["containers"]] == [RAY, "exporter", "more"]
    assert patched["initContainers"] == [{"name": "first"}]


def test_a_volume_keeps_only_the_source_that_the_patch_names() -> None:
    volumes = [{"name": "shm", "emptyDir": {"sizeLimit": "9Gi"}}, {"name": "models", "nfs": {"server": "n"}}]
    assert apply_patch(POD, {"volumes": volumes})["volumes"] == [
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "9Gi"}},
        {"name": "models", "nfs": {"server": "n"}},
    ]


def test_tolerations_are_added_once() -> None:
    more = [{"key": "npu", "operator": "Exists"}, {"key": "gpu", "operator": "Exists"}]
    assert apply_patch(POD, {"tolerations": more})["tolerations"] == more


def test_an_entry_can_be_taken_out() -> None:
    assert ray({"env": [{"name": "A", "$patch": "delete"}, {"name": "none", "$patch": "delete"}]})["env"] == [
        {"name": "B", "value": "2"}
    ]
    assert apply_patch(POD, {"containers": [{"name": "exporter", "$patch": "delete"}]})["containers"][-1]["name"] == RAY


def test_a_list_over_something_else_stands_alone() -> None:
    assert apply_patch({"volumes": None}, {"volumes": [{"name": "a"}]}) == {"volumes": [{"name": "a"}]}


def parts(value: object) -> Iterator[Any]:
    """Yield the maps and lists of a value, the innermost first."""
    if isinstance(value, dict | list):
        for each in list(value.values() if isinstance(value, dict) else value):
            yield from parts(each)
        yield value


def test_nothing_of_the_result_is_part_of_the_rendered_pod_or_of_the_patch() -> None:
    patch = {
        "containers": [{"name": RAY, "env": [{"name": "A", "value": "9"}]}],
        "volumes": [{"name": "x", "emptyDir": {"medium": "Memory"}}],
        "tolerations": [{"key": "npu"}],
        "securityContext": {"sysctls": [{"name": "a", "value": "b"}]},
    }
    before = copy.deepcopy((POD, patch))
    for value in parts(apply_patch(POD, patch)):
        value.clear()
    assert (POD, patch) == before


@given(st.recursive(st.integers() | st.text(max_size=3), lambda inner: st.dictionaries(st.text(max_size=3), inner)))
def test_a_patch_laid_twice_is_a_patch_laid_once(value: object) -> None:
    patch = {"securityContext": value, "tolerations": [{"key": "x"}], "volumes": [{"name": "shm", "emptyDir": {}}]}
    once = apply_patch(POD, patch)
    assert apply_patch(once, patch) == once


@pytest.mark.parametrize(
    ("patch", "path", "part"),
    [
        ({"containers": [{"image": "x"}]}, "containers[0]", "needs name"),
        ({"volumes": ["shm"]}, "volumes[0]", "needs name"),
        ({"containers": [{"name": RAY, "env": [{"value": "x"}]}]}, "containers[0].env[0]", "needs name"),
        ({"containers": [{"name": RAY, "env": [{"name": []}]}]}, "containers[0].env[0].name", "plain value"),
        ({"volumes": [{"name": {"a": "b"}}]}, "volumes[0].name", "plain value"),
        ({"containers": [{"name": RAY, "$patch": "replace"}]}, "containers[0].$patch", "unknown directive"),
        ({"nodeSelector": {"$retainKeys": ["a"]}}, "nodeSelector.$retainKeys", "$patch: delete"),
        ({"dnsConfig": {"options": [{"$patch": "delete"}]}}, "dnsConfig.options[0].$patch", "unknown directive"),
    ],
)
def test_a_patch_that_means_nothing_is_found(patch: Json, path: str, part: str) -> None:
    (problem,) = patch_problems(patch, "patch")
    assert problem.path == f"patch.{path}"
    assert part in problem.message


def test_a_patch_that_means_something_has_no_problems() -> None:
    patch = {
        "containers": [{"name": RAY, "command": ["x"], "env": [{"name": "A", "$patch": "delete"}]}],
        "tolerations": [{"key": "x"}],
    }
    assert list(patch_problems(patch, "patch")) == []


def test_each_row_of_the_table_has_a_list_of_its_own_and_a_source() -> None:
    assert len(RULES) == len(TABLE)
    assert all(rule.source for rule in TABLE)
