"""Fields that a recipe locks."""

from __future__ import annotations

import pytest
from builders import Json

from rljob.api.recipes import RecipeLayer, RecipeOrigin
from rljob.api.v1alpha1 import RecipeKind
from rljob.core.spec.locks import locked_violations
from rljob.core.spec.merge import layer

BLESSED: Json = {
    "runtime": {"image": "blessed:1"},
    "reward": {"path": "/blessed.py"},
    "workerGroups": [{"name": "trainer", "nodes": 2, "template": {"env": [{"name": "A", "value": "1"}]}}],
}
LOCKED = ("runtime.image", "spec.reward", "workerGroups[trainer].template.env[A]")


def recipe(name: str, template: Json, *locked: str, unset: tuple[str, ...] = ()) -> RecipeLayer:
    return RecipeLayer(RecipeOrigin(RecipeKind.CLUSTER_RL_RECIPE, name, "u", 1), template, unset, locked)


@pytest.mark.parametrize(
    ("change", "unset", "field"),
    [
        ({"runtime": {"image": "mine:1"}}, (), "spec.runtime.image"),
        ({"reward": {"path": "/mine.py"}}, (), "spec.reward"),
        ({"reward": {"builtin": "MATH"}}, (), "spec.reward"),
        (
            {"workerGroups": [{"name": "trainer", "template": {"env": [{"name": "A", "value": "2"}]}}]},
            (),
            "spec.workerGroups[trainer].template.env[A]",
        ),
        ({}, ("runtime",), "spec.unset"),
        ({}, ("reward.path",), "spec.unset"),
        ({"runtime": {"image": "blessed:1", "imagePullPolicy": "Always"}}, (), None),
        ({"workerGroups": [{"name": "trainer", "nodes": 4}]}, ("workerGroups[trainer].nodes",), None),
        ({"model": {"path": "/mine"}}, (), None),
    ],
)
def test_a_job_may_repeat_and_not_change(change: Json, unset: tuple[str, ...], field: str | None) -> None:
    found = list(locked_violations([recipe("blessed", BLESSED, *LOCKED)], layer("job", change, unset)))
    assert [violation.field for violation in found] == ([field] if field else [])
    assert all("is locked by ClusterRLRecipe blessed" in violation.message for violation in found)


def test_a_recipe_above_is_held_to_it_and_one_below_is_not() -> None:
    below, above = recipe("below", {"runtime": {"image": "old:1"}}), recipe("above", {"reward": {"path": "/x"}})
    found = list(locked_violations([below, recipe("blessed", BLESSED, *LOCKED), above], layer("job", {})))
    assert [violation.field for violation in found] == ["ClusterRLRecipe above: spec.template.reward"]


def test_without_locks_nothing_is_compared() -> None:
    assert list(locked_violations([recipe("free", BLESSED)], layer("job", {"runtime": {"image": "mine:1"}}))) == []
