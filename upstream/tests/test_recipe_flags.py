"""The shipped recipes: each completes a short job, and sets the flags that the page on published flags lists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from builders import BUILT_IN_RECIPES, EXAMPLES, Json

from rljob.core.spec.recipes import recipe_id
from rljob.core.validation.validate import validate
from rljob.launchers import LAUNCHER
from rljob.launchers.verl.job import overrides
from rljob.launchers.verl.table import TABLE, TYPED_KEYS
from rljob.render.accelerators import BUILT_IN
from rljob.render.names import JobIdentity
from rljob.render.raycluster import build_raycluster
from upstream import recipe_flags
from upstream.command_recipes.table import load_facts
from upstream.recipe_flags import ENVIRONMENT, FLAGS, FLAGSHIPS, QWEN32, QWEN235, TRAINS, Tried, load_tried
from upstream.verl_scripts.table import load_scripts

FLAGSHIP_EXAMPLES = (EXAMPLES / "qwen3-235b.yaml", EXAMPLES / "deepseek-v3.yaml")
USED: dict[str, list[str]] = {}
for path in (*FLAGSHIP_EXAMPLES, *sorted((EXAMPLES / "recipes").glob("*.yaml"))):
    USED.setdefault(yaml.safe_load(path.read_text())["spec"]["recipeRef"]["name"], []).append(path.stem)
TRANSFORMER = "actor_rollout_ref.actor.megatron.override_transformer_config."
FITTED = {
    "num_layers_in_first_pipeline_stage",
    "num_layers_in_last_pipeline_stage",
    "pipeline_model_parallel_layout",
    "recompute_num_layers",
}
"""Settings whose values count the layers of a model."""
JOB = JobIdentity(namespace="team", name="run", uid="0a1b2c3d-0000-4000-8000-000000000001")


def minimal_job(recipe: str) -> Json:
    """Return what a user writes: the flagship's example with this recipe."""
    spec: Json = yaml.safe_load((EXAMPLES / "qwen3-235b.yaml").read_text())["spec"]
    return spec | {"recipeRef": {"kind": "ClusterRLRecipe", "name": recipe}}


def rendered(recipe: str) -> tuple[dict[str, Any], dict[str, str], dict[str, str]]:
    """Return job.json's overrides and the variables of head and workers."""
    spec = validate("run", minimal_job(recipe), BUILT_IN_RECIPES, launcher=LAUNCHER, accelerators=BUILT_IN).spec
    assert spec is not None
    cluster = build_raycluster(JOB, spec, 1, "digest")["spec"]
    pods = (cluster["headGroupSpec"], cluster["workerGroupSpecs"][0])
    head, workers = (
        {entry["name"]: entry.get("value", "") for entry in pod["template"]["spec"]["containers"][0]["env"]}
        for pod in pods
    )
    return dict(overrides(spec)), head, workers


@pytest.mark.parametrize("recipe", sorted(str(recipe_id(manifest).name) for manifest in BUILT_IN_RECIPES.values()))
def test_a_recipe_completes_the_few_lines_of_a_job(recipe: str) -> None:
    assert (
        validate("run", minimal_job(recipe), BUILT_IN_RECIPES, launcher=LAUNCHER, accelerators=BUILT_IN).violations
        == ()
    )


@pytest.mark.parametrize("manifest", BUILT_IN_RECIPES.values(), ids=lambda manifest: manifest["metadata"]["name"])
def test_a_recipe_says_what_it_is_for_and_where_it_comes_from(manifest: Json) -> None:
    assert all(manifest["spec"].get(name) for name in ("description", "hardware", "source"))


@pytest.mark.parametrize("recipe", sorted(str(recipe_id(manifest).name) for manifest in BUILT_IN_RECIPES.values()))
def test_a_recipe_has_an_example(recipe: str) -> None:
    """An example has golden manifests and a memory plan, and is composed with verl's schema."""
    (example,) = USED.get(recipe, [None])
    assert example is not None


@pytest.mark.parametrize("recipe", FLAGSHIPS)
def test_every_flag_is_rendered_as_the_page_says(recipe: str) -> None:
    found = rendered(recipe)[0]
    claimed = {flag.rendered: flag.values[recipe] for flag in FLAGS if recipe in flag.values}
    assert {key: found.get(key, "not rendered") for key in claimed} == claimed


@pytest.mark.parametrize("recipe", FLAGSHIPS)
def test_every_variable_is_set_as_the_page_says(recipe: str) -> None:
    _, head, workers = rendered(recipe)
    claimed = {row.name: row.values.get(recipe) for row in ENVIRONMENT}
    assert {name: workers.get(name) for name in claimed} == claimed
    operators = {row.name for row in ENVIRONMENT if row.place == "operator" and recipe in row.values}
    assert operators <= set(head)


@pytest.mark.parametrize("recipe", FLAGSHIPS)
def test_an_override_of_a_recipe_is_a_flag_of_the_page(recipe: str) -> None:
    spec = validate("run", minimal_job(recipe), BUILT_IN_RECIPES, launcher=LAUNCHER, accelerators=BUILT_IN).spec
    assert spec is not None
    assert set(spec.verl.overrides) <= {flag.rendered for flag in FLAGS}


def test_what_is_left_out_has_a_reason() -> None:
    assert [flag.name for flag in FLAGS if not flag.values and not flag.note] == []
    assert [row.name for row in ENVIRONMENT if row.place == "left out" and not row.note] == []
    assert [row.name for row in ENVIRONMENT if row.values and row.place not in ("operator", "recipe")] == []


def test_a_flag_stands_once_and_in_a_known_place() -> None:
    names = [flag.name for flag in FLAGS]
    assert {name for name in names if names.count(name) > 1} == set()
    fields = set(TYPED_KEYS.values()) | {row.field for row in TABLE}
    places = {flag.place for flag in FLAGS} - set(recipe_flags.WORDS)
    assert places - fields == {"optimizations.skipOldLogProb"}


def transformer(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the transformer."""
    return {key.split(TRANSFORMER)[1]: value for key, value in keys.items() if TRANSFORMER in key}


def fields_at_fault(row: Tried) -> set[str]:
    """Return the settings of a row that RLJob refuses in a job for that kind of model."""
    job = minimal_job(QWEN32 if row.model in ("dense", "qwen3") else QWEN235)
    job["trainer"] = {"parallelism": {name: getattr(row, name) for name in ("tensor", "pipeline", "context")}}
    job["verl"] = {"overrides": yaml.safe_dump({f"+{TRANSFORMER}{key}": value for key, value in row.override.items()})}
    found = validate("run", job, BUILT_IN_RECIPES, launcher=LAUNCHER, accelerators=BUILT_IN).violations
    return {key for key in row.override for each in found if f"{TRANSFORMER}{key}" in str(each)}


@pytest.mark.parametrize("recipe", sorted(str(recipe_id(manifest).name) for manifest in BUILT_IN_RECIPES.values()))
def test_the_settings_of_a_recipe_were_tried_together(recipe: str) -> None:
    wanted = transformer(rendered(recipe)[0])
    tried = {name: value for row in load_tried() if recipe in row.recipes for name, value in row.override.items()}
    assert set(tried) == set(wanted)
    assert {name: tried[name] for name in set(tried) - FITTED} == {name: wanted[name] for name in set(wanted) - FITTED}


def test_every_setting_of_the_sources_was_tried() -> None:
    published = [{flag.name: "" for flag in FLAGS}, *(facts.flags for facts in load_facts().values())]
    verl = [script.flags for script in load_scripts()]
    wanted = {name for flags in (*published, *verl) for name in transformer(flags)}
    assert wanted - {name for row in load_tried() for name in row.override} == set()


@pytest.mark.parametrize(
    "row",
    [row for row in load_tried() if not row.recipes and row.model != "deepseek"],
    ids=lambda row: f"{row.model}-{'-'.join(row.override)}",
)
def test_what_did_not_start_is_refused_and_nothing_else(row: Tried) -> None:
    assert bool(fields_at_fault(row)) == (row.found != TRAINS and not row.emulation)
