"""What a recipe sets, with its bases merged below it, for `rljob recipes`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rljob.api.group import GROUP
from rljob.api.v1alpha1 import RecipeKind
from rljob.cli import kubectl
from rljob.cli.errors import UsageError
from rljob.cli.status import table
from rljob.core.observed import Manifest, RecipeId
from rljob.core.spec.merge import leaves, merge, path_text
from rljob.core.spec.recipes import complete, merge_layer, resolve
from rljob.reading.figures import ABSENT

VALUE_CHARACTERS = 100
DESCRIPTION_CHARACTERS = 80


@dataclass(frozen=True)
class View:
    """A recipe, and each field that it or a base of it sets."""

    recipe: Manifest
    fields: Mapping[str, tuple[Any, str]]
    """Value and source of each field."""


def read_view(name: str, place: kubectl.Place) -> View:
    """Read a recipe and its bases: the RLRecipe of this name, or else the ClusterRLRecipe."""
    kind, _, plain = name.rpartition("/")
    kinds = {"": tuple(RecipeKind), **{f"{each.value.lower()}.{GROUP}": (each,) for each in RecipeKind}}
    wanted = [RecipeId(each, plain) for each in kinds.get(kind, tuple(RecipeKind))]
    found = next(((which, recipe) for which in wanted if (recipe := kubectl.find_recipe(which, place))), None)
    if found is None:
        raise kubectl.NotFoundError(f"there is no recipe {name}; `rljob recipes list` lists those of the namespace")
    which, recipe = found
    start = {"recipeRef": {"kind": which.kind.value, "name": plain}}
    chain = resolve(start, complete(start, {which: recipe}, lambda each: kubectl.find_recipe(each, place)))
    if chain.violations:
        raise UsageError(f"recipe {name} is broken: {'; '.join(map(str, chain.violations))}")
    merged = merge([merge_layer(layer) for layer in chain.layers])
    return View(recipe, {path_text(path): (leaf.value, leaf.source) for path, leaf in leaves(merged.tree)})


def list_page(recipes: Sequence[Manifest], *, wide: bool) -> str:
    """Return the table of recipes."""
    rows = [("NAME", "KIND", "HARDWARE", "DESCRIPTION", *(("BASE", "SOURCE") if wide else ()))]
    for recipe in recipes:
        spec = recipe.get("spec") or {}
        more = (str((spec.get("recipeRef") or {}).get("name") or ABSENT), str(spec.get("source") or ABSENT))
        rows.append(
            (
                str(recipe["metadata"]["name"]),
                str(recipe["kind"]),
                str(spec.get("hardware") or ABSENT),
                _short(" ".join(str(spec.get("description") or ABSENT).split()), DESCRIPTION_CHARACTERS),
                *(more if wide else ()),
            )
        )
    return table(rows)


def show_page(view: View) -> str:
    """Return what a recipe says about itself, and its fields."""
    spec = view.recipe.get("spec") or {}
    about = [f"{name}: {spec[name]}" for name in ("description", "hardware", "source") if spec.get(name)]
    rows = [(field, _short(_text(value), VALUE_CHARACTERS), source) for field, (value, source) in view.fields.items()]
    return "\n\n".join([*(["\n".join(about)] if about else []), table([("FIELD", "VALUE", "SET BY"), *rows])])


def differences(before: View, after: View) -> list[tuple[str, str, str]]:
    """Return the fields in which two recipes differ, with both values."""
    found = []
    for field in dict.fromkeys([*before.fields, *after.fields]):
        old, new = (_text(view.fields[field][0]) if field in view.fields else ABSENT for view in (before, after))
        if old != new:
            found.append((field, old, new))
    return found


def differences_page(found: Sequence[tuple[str, str, str]], before: str, after: str) -> str:
    """Return the table of differences."""
    rows = [(field, _short(old, VALUE_CHARACTERS), _short(new, VALUE_CHARACTERS)) for field, old, new in found]
    return table([("FIELD", before, after), *rows])


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str, characters: int) -> str:
    return text if len(text) <= characters else f"{text[: characters - 1]}…"
