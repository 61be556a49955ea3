"""A job together with its recipes has a bound, and the violation names what to shorten."""

from __future__ import annotations

from builders import Json, job, merged, reasons, small_spec, validate
from builders import decide as decided

from rljob.api.limits import SPEC_BYTES_MAX, SPEC_TOO_LARGE
from rljob.api.v1alpha1 import RecipeKind
from rljob.core.observed import Observed, RecipeId
from rljob.core.spec.recipes import resolve
from rljob.core.validation.sizes import json_bytes, size_violations
from rljob.core.validation.validate import check
from rljob.launchers import LAUNCHER
from rljob.render.accelerators import BUILT_IN

WORDS = ["x" * 4096] * 32


def services(*names: str) -> Json:
    entries = [{"name": name, "image": "a", "port": 9000 + ord(name), "args": WORDS} for name in names]
    return {"services": entries}


def recipe(spec: Json) -> dict[RecipeId, Json]:
    found = {"kind": "RLRecipe", "metadata": {"name": "r", "uid": "u", "generation": 1}, "spec": spec}
    return {RecipeId(RecipeKind.RL_RECIPE, "r"): found}


REFERENCE = {"recipeRef": {"kind": "RLRecipe", "name": "r"}}


def test_a_job_and_its_recipe_are_together_too_large() -> None:
    known = recipe({"template": services("a")})
    assert validate("sums", small_spec(REFERENCE), known).violations == ()
    (violation,) = validate("sums", small_spec(merged(REFERENCE, services("b"))), known).violations
    assert violation.field == "spec.services"
    assert "of the " in violation.message
    assert f"of which at most {SPEC_BYTES_MAX} are allowed with its recipes; move long texts" in violation.message


def test_the_largest_part_is_named() -> None:
    assert list(size_violations({"a": 1})) == []
    (text,) = size_violations({"small": {}, "model": {"b": "x" * SPEC_BYTES_MAX, "c": 1}})
    assert text.field == "spec.model.b"
    (entry,) = size_violations({"a": [{"b": 1}, {"c": "x" * SPEC_BYTES_MAX}]}, "spec")
    assert entry.field == "spec.a[1].c"
    (many,) = size_violations({"a": ["x" * 1000] * 300})
    assert many.field == "spec.a"
    (key,) = size_violations({"a": {"x" * SPEC_BYTES_MAX: {}}})
    assert key.field.startswith("spec.a")
    assert json_bytes("é\ud800") == len('"') * 2 + 2 + 3


def test_a_spec_of_which_only_the_size_was_kept_is_refused() -> None:
    (violation,) = validate("sums", {SPEC_TOO_LARGE: 1_400_000}).violations
    said = f"is 1400000 bytes, at most {SPEC_BYTES_MAX} are allowed; delete and recreate it"
    assert (violation.field, violation.message) == ("spec", said)
    (below,) = validate("sums", small_spec(REFERENCE), recipe({SPEC_TOO_LARGE: 1_400_000})).violations
    assert (below.field, below.message) == ("RLRecipe r: spec", said)
    plan = decided(Observed(job({SPEC_TOO_LARGE: 1_400_000}), snapshot=None))
    assert reasons(plan)["Validated"] == ("False", "InvalidSpec")


def test_a_snapshots_recipes_do_not_help_a_spec_of_which_only_the_size_was_kept() -> None:
    (violation,) = check("sums", {SPEC_TOO_LARGE: 300_000}, (), launcher=LAUNCHER, accelerators=BUILT_IN).violations
    assert violation.field == "spec"
    assert check("sums", small_spec(), (), launcher=LAUNCHER, accelerators=BUILT_IN).violations == ()


def test_a_recipe_with_a_map_in_place_of_a_text_is_refused() -> None:
    manifest = {"metadata": {"name": "r"}, "spec": {"template": {"verl": {"overrides": {"a": 1}}}}}
    chain = resolve(REFERENCE, {RecipeId(RecipeKind.RL_RECIPE, "r"): manifest})
    assert [violation.field for violation in chain.violations] == ["RLRecipe r: spec.template.verl.overrides"]
