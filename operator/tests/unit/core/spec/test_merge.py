"""Merging a job's spec over its recipes.

What merges, what is replaced, what is removed, and the source of each value.
"""

from __future__ import annotations

from typing import Any

import pytest
from builders import Json

from rljob.api.field_path import parse_path
from rljob.core.spec.merge import layer, leaves, merge, path_text, unset_problem, values


def laid(*specs: Json, unset: tuple[str, ...] = ()) -> Json:
    *lower, upper = specs
    return values(merge([*(layer(str(index), spec) for index, spec in enumerate(lower)), layer("job", upper, unset)]))


GROUP = {"name": "trainer", "nodes": 8, "template": {"env": [{"name": "A", "value": "1"}], "labels": {"a": "1"}}}


@pytest.mark.parametrize(
    ("recipe", "job", "merged"),
    [
        ({"trainer": {"steps": 1}}, {"trainer": {"learningRate": "1"}}, {"trainer": {"steps": 1, "learningRate": "1"}}),
        ({"trainer": {"steps": 1}}, {"trainer": {"steps": 2}}, {"trainer": {"steps": 2}}),
        (
            {"workerGroups": [GROUP]},
            {"workerGroups": [{"name": "trainer", "nodes": 4, "template": {"env": [{"name": "B", "value": "2"}]}}]},
            {
                "workerGroups": [
                    {
                        "name": "trainer",
                        "nodes": 4,
                        "template": {
                            "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}],
                            "labels": {"a": "1"},
                        },
                    }
                ]
            },
        ),
        (
            {"code": {"type": "ConfigMap", "configMap": {"name": "x"}, "mountPath": "/x"}},
            {"code": {"type": "Image"}},
            {"code": {"type": "Image"}},
        ),
        ({"data": {"train": ["/a", "/b"]}}, {"data": {"train": ["/c"]}}, {"data": {"train": ["/c"]}}),
        (
            {"head": {"template": {"tolerations": [{"key": "a", "effect": "NoSchedule"}, {"operator": "Exists"}]}}},
            {"head": {"template": {"tolerations": [{"key": "a", "effect": "NoSchedule", "value": "x"}, {"key": "b"}]}}},
            {
                "head": {
                    "template": {
                        "tolerations": [
                            {"key": "a", "effect": "NoSchedule", "value": "x"},
                            {"operator": "Exists"},
                            {"key": "b"},
                        ]
                    }
                }
            },
        ),
        (
            {"verl": {"overrides": {"a.b": 1, "c": [1, 2]}}},
            {"verl": {"overrides": {"c": [3]}}},
            {"verl": {"overrides": {"a.b": 1, "c": [3]}}},
        ),
        ({"workerGroups": [GROUP]}, {"workerGroups": []}, {"workerGroups": [GROUP]}),
        ({"secretRefs": [{"name": "a"}]}, {"secretRefs": "a"}, {"secretRefs": "a"}),
        ({"secretRefs": [{"name": "a"}]}, {"secretRefs": [{"nam": "a"}]}, {"secretRefs": [{"nam": "a"}]}),
        (
            {"secretRefs": [{"name": "a"}]},
            {"secretRefs": [{"name": "b"}, {"name": "b"}]},
            {"secretRefs": [{"name": "b"}, {"name": "b"}]},
        ),
        ({"secretRefs": [{"name": "a"}]}, {"secretRefs": ["a"]}, {"secretRefs": ["a"]}),
    ],
)
def test_a_job_is_laid_over_its_recipe(recipe: Json, job: Json, merged: Json) -> None:
    assert laid(recipe, job) == merged


@pytest.mark.parametrize(
    ("path", "left"),
    [
        ("trainer.steps", {"trainer": {"learningRate": "1"}, "workerGroups": [GROUP]}),
        ("trainer", {"workerGroups": [GROUP]}),
        ("workerGroups[trainer]", {"trainer": {"steps": 1, "learningRate": "1"}, "workerGroups": []}),
        ("workerGroups[other].nodes", {"trainer": {"steps": 1, "learningRate": "1"}, "workerGroups": [GROUP]}),
        ("rollout.eager", {"trainer": {"steps": 1, "learningRate": "1"}, "workerGroups": [GROUP]}),
        (
            "workerGroups[trainer].template.labels[a]",
            {
                "trainer": {"steps": 1, "learningRate": "1"},
                "workerGroups": [GROUP | {"template": {"env": [{"name": "A", "value": "1"}], "labels": {}}}],
            },
        ),
    ],
)
def test_unset_leaves_a_recipes_field_out(path: str, left: Json) -> None:
    recipe = {"trainer": {"steps": 1, "learningRate": "1"}, "workerGroups": [GROUP]}
    assert laid(recipe, {}, unset=(path,)) == left


def test_a_path_of_unset_may_begin_with_spec() -> None:
    assert unset_problem("spec.trainer.steps") is None
    assert laid({"trainer": {"steps": 1}}, {}, unset=("spec.trainer.steps",)) == {"trainer": {}}


def test_unset_spares_the_jobs_own_value() -> None:
    recipe: Json = {"trainer": {"steps": 1, "learningRate": "1"}}
    assert laid(recipe, {"trainer": {"steps": 2}}, unset=("trainer",)) == {"trainer": {"steps": 2}}


def test_every_leaf_knows_who_set_it() -> None:
    lower = {"trainer": {"steps": 1, "learningRate": "1"}, "workerGroups": [GROUP]}
    upper = {"trainer": {"steps": 2}, "verl": {"overrides": {"a.b": 1}}}
    found = {path: leaf.source for path, leaf in leaves(merge([layer("recipe", lower), layer("job", upper)]).tree)}
    assert {path_text(path): source for path, source in found.items()} == {
        "trainer.steps": "job",
        "trainer.learningRate": "recipe",
        "workerGroups[trainer].name": "recipe",
        "workerGroups[trainer].nodes": "recipe",
        "workerGroups[trainer].template.env[A]": "recipe",
        "workerGroups[trainer].template.labels[a]": "recipe",
        "verl.overrides[a.b]": "job",
    }


@pytest.mark.parametrize(
    "text", ["trainer.steps", "workerGroups[trainer].template.env[FOO]", "verl.overrides[actor_rollout_ref.rollout.n]"]
)
def test_a_path_is_written_as_it_is_read(text: str) -> None:
    path = parse_path(text)
    assert path is not None
    assert path_text(path) == text
    assert unset_problem(text) is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a path"),
        (".trainer", "is not a path"),
        ("[trainer]", "is not a path"),
        ("trainer..steps", "is not a path"),
        ("trainer steps", "is not a path"),
        ("trainer.step", "trainer has no field step; its fields are async, backend,"),
        ("nothing", "spec has no field nothing"),
        ("spec", "is not a path"),
        ("spec.nothing", "spec has no field nothing"),
        (
            "spec.workerGroups[0].nodes",
            "are named by name, not by index; write workerGroups[NAME]",
        ),
        ("code.type", "code is replaced as a whole"),
        ("trainer.steps.more", "trainer.steps is replaced as a whole"),
    ],
)
def test_a_path_that_names_no_field_is_a_problem(text: str, message: str) -> None:
    assert message in str(unset_problem(text))


@pytest.mark.parametrize("raw", [{"trainer": 1}, {"trainer": [1]}, {"workerGroups": {"a": 1}}, {"madeUp": {"a": 1}}])
def test_what_has_a_wrong_shape_is_carried_along(raw: dict[str, Any]) -> None:
    assert laid({"trainer": {"steps": 1}}, raw) == {"trainer": {"steps": 1}} | raw
