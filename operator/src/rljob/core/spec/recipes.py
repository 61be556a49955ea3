"""The recipes below a job: the chain that starts at its recipeRef, looked up among the observed recipes.

A recipe's template is a layer below the job's spec (`core.spec.merge`). The job's snapshot keeps the recipes with uid
and generation, so that a later edit of a recipe is reported as drift and never reaches a running job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rljob.api.limits import OVER_BUDGET, SPEC_TOO_LARGE
from rljob.api.recipes import RecipeLayer, RecipeOrigin
from rljob.api.texts import read_texts
from rljob.api.v1alpha1 import MAX_RECIPE_DEPTH, NOT_IN_A_RECIPE, RecipeKind
from rljob.core.observed import Manifest, RecipeId
from rljob.core.spec.merge import Layer, layer, unset_problem
from rljob.core.validation.sizes import kept_size_violation
from rljob.core.validation.violation import Violation

JOB_SOURCE = "job"


@dataclass(frozen=True)
class Chain:
    """The recipes of a job, the lowest first, and their violations."""

    layers: tuple[RecipeLayer, ...] = ()
    violations: tuple[Violation, ...] = ()


Recipes = Mapping[RecipeId, Manifest]
NOT_IN_CLUSTER = "does not exist; `kubectl get rlrecipes,clusterrlrecipes` lists them"


def merge_layer(recipe: RecipeLayer) -> Layer:
    """Return what `core.spec.merge` lays over the recipe below."""
    return layer(str(recipe.origin), recipe.template, recipe.unset)


def chain_ids(raw_spec: Mapping[str, Any], find: Callable[[RecipeId], Manifest | None]) -> tuple[RecipeId, ...]:
    """Return the recipes that recipeRef leads to, as far as they are found; the last one may not exist.

    Unlike `resolve` it checks nothing: the result says which recipes concern the job.
    """
    seen: list[RecipeId] = []
    wanted = reference_id(raw_spec.get("recipeRef"))
    while wanted is not None and wanted not in seen and len(seen) < MAX_RECIPE_DEPTH:
        seen.append(wanted)
        found = find(wanted)
        wanted = reference_id(((found or {}).get("spec") or {}).get("recipeRef"))
    return tuple(seen)


def resolve(raw_spec: Mapping[str, Any], recipes: Recipes, absent: str = NOT_IN_CLUSTER) -> Chain:
    """Follow recipeRef to a recipe that has none. `absent` completes the message about a missing one."""
    found: list[RecipeLayer] = []
    seen: list[RecipeId] = []
    place, reference, may_be_local = "spec.recipeRef", raw_spec.get("recipeRef"), True
    while reference is not None:
        wanted = reference_id(reference)
        if wanted is None:
            return _broken(place, "requires kind (RLRecipe or ClusterRLRecipe) and name")
        if not may_be_local and wanted.kind is RecipeKind.RL_RECIPE:
            return _broken(place, f"a ClusterRLRecipe is used in every namespace, so it cannot refer to {wanted}")
        if wanted in seen:
            return _broken(place, f"a cycle: {' -> '.join(map(str, [*seen, wanted]))}; remove one recipeRef")
        if len(seen) == MAX_RECIPE_DEPTH:
            return _broken(place, f"more than {MAX_RECIPE_DEPTH} recipes in a chain; merge some of them")
        if wanted not in recipes:
            return _broken(place, f"{wanted} {absent}")
        spec = recipes[wanted].get("spec") or {}
        if problems := tuple(_template_violations(wanted, spec)):
            return Chain(violations=problems)
        template, unread = read_texts(spec["template"], f"{wanted}: spec.template")
        if unread:
            return Chain(violations=tuple(Violation(problem.field, problem.message) for problem in unread))
        found.append(_read(wanted, recipes[wanted], template))
        seen.append(wanted)
        place, reference = f"{wanted}: spec.recipeRef", spec.get("recipeRef")
        may_be_local = wanted.kind is RecipeKind.RL_RECIPE
    return Chain(tuple(reversed(found)))


def complete(raw_spec: Mapping[str, Any], known: Recipes, find: Callable[[RecipeId], Manifest | None]) -> Recipes:
    """Return the known recipes and those that `find` returns for the rest of the chain."""
    found = dict(known)

    def look(wanted: RecipeId) -> Manifest | None:
        manifest = found.get(wanted) or find(wanted)
        if manifest is not None:
            found[wanted] = manifest
        return manifest

    chain_ids(raw_spec, look)
    return found


def reference_id(reference: object) -> RecipeId | None:
    """Parse a recipeRef; None where it names nothing."""
    if not isinstance(reference, Mapping) or not reference.get("name"):
        return None
    try:
        return RecipeId(RecipeKind(reference.get("kind", RecipeKind.CLUSTER_RL_RECIPE)), str(reference["name"]))
    except ValueError:
        return None


def recipe_id(manifest: Manifest) -> RecipeId:
    """Return the id by which a recipeRef names a recipe."""
    return RecipeId(RecipeKind(manifest["kind"]), str(manifest["metadata"]["name"]))


def unset_violations(place: str, unset: object) -> Iterator[Violation]:
    """Yield the violations of a list of paths to remove or to lock."""
    for index, text in enumerate(_texts(unset)):
        if (problem := unset_problem(text)) is not None:
            yield Violation(f"{place}[{index}]", problem)


def _template_violations(recipe: RecipeId, spec: Mapping[str, Any]) -> Iterator[Violation]:
    template = spec.get("template")
    if SPEC_TOO_LARGE in spec or OVER_BUDGET in spec:
        yield from kept_size_violation(spec, f"{recipe}: spec")
        return
    if not isinstance(template, Mapping):
        yield Violation(f"{recipe}: spec.template", "is required and not set")
        return
    for path in sorted(NOT_IN_A_RECIPE):
        if _has(template, path):
            yield Violation(f"{recipe}: spec.template.{path}", "belongs to a single job; remove it from the recipe")
    yield from unset_violations(f"{recipe}: spec.unset", spec.get("unset"))
    yield from unset_violations(f"{recipe}: spec.locked", spec.get("locked"))


def _has(template: Mapping[str, Any], path: str) -> bool:
    found: object = template
    for name in path.split("."):
        if not isinstance(found, Mapping) or name not in found:
            return False
        found = found[name]
    return True


def _read(wanted: RecipeId, manifest: Manifest, template: Mapping[str, Any]) -> RecipeLayer:
    metadata, spec = manifest["metadata"], manifest["spec"]
    origin = RecipeOrigin(
        wanted.kind, wanted.name, str(metadata.get("uid", "")), int(metadata.get("generation", 0) or 0)
    )
    return RecipeLayer(origin, template, tuple(_texts(spec.get("unset"))), tuple(_texts(spec.get("locked"))))


def _texts(found: object) -> Sequence[str]:
    return [text for text in found if isinstance(text, str)] if isinstance(found, list) else []


def _broken(place: str, message: str) -> Chain:
    return Chain(violations=(Violation(place, message),))
