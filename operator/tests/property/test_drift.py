"""A running job in the whole world while recipes are edited and the operator is upgraded.

The changes are reported once, and the cluster is never touched.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from builders import small_spec
from property.world import World

from rljob.cluster.kinds import CLUSTER_RL_RECIPE, CONFIG_MAP, POD, RAY_CLUSTER, RL_RECIPE, SECRET
from rljob.core.observed import Manifest
from rljob.render import labels

CHILDREN = (RAY_CLUSTER, CONFIG_MAP, SECRET, POD)


def recipe(kind: str, name: str, template: dict[str, object], below: str | None = None) -> Manifest:
    place = {"namespace": "team"} if kind == "RLRecipe" else {}
    spec = {"template": template} | ({"recipeRef": {"name": below}} if below else {})
    return {"apiVersion": "rljob.dev/v1alpha1", "kind": kind, "metadata": {"name": name, **place}, "spec": spec}


@pytest.fixture
def world() -> Iterator[World]:
    """Return a job that trains, on a recipe based on another recipe."""
    made = World(small_spec({"recipeRef": {"kind": "RLRecipe", "name": "ours"}, "trainer": {"learningRate": None}}))
    made.cluster.put(recipe("ClusterRLRecipe", "base", {"trainer": {"learningRate": "1e-5"}}))
    made.cluster.put(recipe("RLRecipe", "ours", {"rollout": {"maxSequences": 8}}, below="base"))
    made.settle()
    made.make_ready()
    made.settle()
    made.run_driver(steps=1)
    made.clock.advance(10)
    made.settle()
    yield made
    made.close()


def children(world: World) -> list[tuple[str, str]]:
    return [(o["kind"], o["metadata"]["resourceVersion"]) for kind in CHILDREN for o in world.cluster.objects(kind)]


def news(world: World) -> dict[str, tuple[str, str]]:
    wanted = ("PendingChanges", "RecipeDrift", "RendererDrift")
    return {c.type: (c.status.value, c.message) for c in world.status.conditions if c.type in wanted}


def test_the_job_took_both_recipes(world: World) -> None:
    resolved = world.status.resolved
    assert resolved is not None
    assert [(taken.kind, taken.name, taken.generation) for taken in resolved.recipes] == [
        ("ClusterRLRecipe", "base", 1),
        ("RLRecipe", "ours", 1),
    ]
    config = world.cluster.find(CONFIG_MAP, "team", "sums-00000-1")
    assert config is not None
    assert '"actor_rollout_ref.rollout.max_num_seqs":8' in config["data"]["job.json"]
    assert '"actor_rollout_ref.actor.optim.lr":1e-05' in config["data"]["job.json"]


def test_an_edited_recipe_costs_one_status_write_and_touches_nothing(world: World) -> None:
    before, words = children(world), len(world.words)
    world.cluster.edit(CLUSTER_RL_RECIPE, "", "base", lambda r: r["spec"].update(template={"trainer": {"steps": 90}}))
    world.settle()
    assert world.words[words:] == ["status"]
    assert children(world) == before
    assert news(world).keys() == {"RecipeDrift"}
    assert "ClusterRLRecipe base changed from generation 1 to 2" in news(world)["RecipeDrift"][1]
    for _ in range(3):
        world.stop_operator()
        world.clock.advance(30)
        world.settle()
    assert world.words[words:] == ["status"]


def test_a_recipe_that_nobody_stands_on_costs_nothing(world: World) -> None:
    words = len(world.words)
    world.cluster.put(recipe("RLRecipe", "base", {}))
    world.settle()
    assert world.words[words:] == []


def test_deleted_and_restored_recipes_are_reported_and_never_applied(world: World) -> None:
    before = children(world)
    made = world.cluster.find(RL_RECIPE, "team", "ours")
    assert made is not None
    world.cluster.remove(RL_RECIPE, "team", "ours")
    world.settle()
    assert "RLRecipe ours was deleted;" in news(world)["RecipeDrift"][1]
    world.cluster.put(made)
    world.settle()
    assert "RLRecipe ours was deleted and created again" in news(world)["RecipeDrift"][1]
    assert children(world) == before


def test_an_upgrade_with_another_renderer_costs_one_status_write(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    before, words = children(world), len(world.words)
    monkeypatch.setattr(labels, "RENDERER_VERSION", "later")
    world.stop_operator()
    world.settle()
    world.stop_operator()
    world.settle()
    assert world.words[words:] == ["status"]
    assert children(world) == before
    assert news(world)["RendererDrift"][0] == "True"
