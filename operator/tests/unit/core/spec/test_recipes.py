"""The recipes that a job is based on, and errors of chains that cannot be resolved."""

from __future__ import annotations

import pytest
from builders import Json, small_spec, validate

from rljob.api.v1alpha1 import RecipeKind
from rljob.core.spec.recipes import Recipes, complete, recipe_id, resolve


def recipe(name: str, template: Json | None = None, below: Json | None = None, **spec: object) -> Json:
    kind = "RLRecipe" if name.startswith("team") else "ClusterRLRecipe"
    body: Json = {"template": template if template is not None else {}} | spec
    return {
        "kind": kind,
        "metadata": {"name": name, "uid": f"uid-{name}", "generation": 3},
        "spec": body | ({"recipeRef": below} if below else {}),
    }


def seen(*manifests: Json) -> Recipes:
    return {recipe_id(manifest): manifest for manifest in manifests}


def reference(name: str) -> Json:
    return {"kind": "RLRecipe" if name.startswith("team") else "ClusterRLRecipe", "name": name}


def test_a_chain_is_followed_down_and_given_from_the_lowest() -> None:
    found = seen(recipe("base", {"trainer": {"steps": 1}}), recipe("team", {}, reference("base"), unset=["code"]))
    chain = resolve({"recipeRef": reference("team")}, found)
    assert [str(each.origin) for each in chain.layers] == ["ClusterRLRecipe base", "RLRecipe team"]
    assert (chain.layers[1].origin.uid, chain.layers[1].origin.generation) == ("uid-team", 3)
    assert chain.layers[1].unset == ("code",)
    assert chain.violations == ()


def test_a_reference_without_kind_means_a_recipe_of_the_cluster() -> None:
    assert resolve({"recipeRef": {"name": "base"}}, seen(recipe("base"))).layers[0].origin.kind == "ClusterRLRecipe"


@pytest.mark.parametrize(
    ("ref", "recipes", "field", "message"),
    [
        ({"name": "gone"}, (), "spec.recipeRef", "ClusterRLRecipe gone does not exist; `kubectl get"),
        ({"kind": "Recipe", "name": "x"}, (), "spec.recipeRef", "requires kind (RLRecipe or ClusterRLRecipe) and name"),
        ("base", (), "spec.recipeRef", "requires kind"),
        ({}, (), "spec.recipeRef", "requires kind"),
        (
            reference("a"),
            (recipe("a", {}, reference("b")), recipe("b", {}, reference("a"))),
            "ClusterRLRecipe b: spec.recipeRef",
            "a cycle: ClusterRLRecipe a -> ClusterRLRecipe b -> ClusterRLRecipe a",
        ),
        (
            reference("a"),
            (recipe("a", {}, reference("team-x")), recipe("team-x")),
            "ClusterRLRecipe a: spec.recipeRef",
            "a ClusterRLRecipe is used in every namespace, so it cannot refer to RLRecipe team-x",
        ),
        (
            reference("a"),
            tuple(recipe(n, {}, reference(m)) for n, m in ("ab", "bc", "cd", "de", "ef")),
            "ClusterRLRecipe d: spec.recipeRef",
            "more than 4 recipes in a chain",
        ),
        (
            reference("a"),
            (recipe("a", {"suspend": True, "unset": []}),),
            "ClusterRLRecipe a: spec.template.suspend",
            "belongs to a single job",
        ),
        (
            reference("a"),
            (recipe("a", {}, unset=["trainer.step", "code"]),),
            "ClusterRLRecipe a: spec.unset[0]",
            "no field step",
        ),
        (
            reference("a"),
            ({"kind": "ClusterRLRecipe", "metadata": {"name": "a"}, "spec": {"unset": 1}},),
            "ClusterRLRecipe a: spec.template",
            "is required and not set",
        ),
    ],
)
def test_a_chain_that_cannot_be_resolved_is_a_violation(
    ref: object, recipes: tuple[Json, ...], field: str, message: str
) -> None:
    chain = resolve({"recipeRef": ref}, seen(*recipes))
    assert chain.layers == ()
    assert chain.violations[0].field == field
    assert message in chain.violations[0].message


def test_a_job_completes_its_recipe() -> None:
    spec = small_spec()
    job = {"recipeRef": reference("base"), "trainer": {"steps": 7}, "unset": ["observability"]}
    checked = validate("sums", job, seen(recipe("base", spec)))
    assert checked.violations == ()
    assert checked.spec is not None
    assert (checked.spec.trainer.steps, checked.spec.model.path) == (7, spec["model"]["path"])
    assert checked.recipes[0].origin.kind is RecipeKind.CLUSTER_RL_RECIPE


def test_a_missing_recipe_is_the_only_violation_of_a_job_that_uses_it() -> None:
    violations = validate("sums", {"recipeRef": reference("base"), "trainer": {"steps": 7}}).violations
    assert [violation.field for violation in violations] == ["spec.recipeRef"]


def test_an_invalid_unset_and_a_null_are_violations() -> None:
    spec = small_spec() | {"unset": ["trainer.step"], "rollout": None, "data": {"train": [None]}}
    fields = [violation.field for violation in validate("sums", spec).violations]
    assert fields == ["spec.unset[0]", "spec.data.train[0]", "spec.rollout"]


def test_a_chain_is_completed_by_what_can_be_found_and_no_further() -> None:
    there = seen(*(recipe(n, {}, reference(m)) for n, m in ("ab", "bc", "cd", "de", "ef", "fa")))
    known = seen(recipe("a", {}, reference("b")))
    found = complete({"recipeRef": reference("a")}, known, there.get)
    assert [wanted.name for wanted in found] == ["a", "b", "c", "d"]
    assert complete({"recipeRef": reference("a")}, known, lambda _: None) == known
    assert complete({}, known, there.get) == known
