"""Fields that a recipe locks: no layer above it may set them to another value, or remove them.

A namespace may be limited to some recipes; what those lock then holds for every job in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rljob.api.field_path import Path
from rljob.api.recipes import RecipeLayer
from rljob.core.spec.merge import EMPTY, Layer, leaves, path_text, spec_path, stack
from rljob.core.spec.recipes import merge_layer
from rljob.core.validation.violation import Violation


@dataclass
class Locks:
    """Locked fields, each with the recipe that locks it."""

    fields: dict[Path, str] = field(default_factory=dict)
    above: dict[Path, str] = field(default_factory=dict)
    """The fields that contain a locked one, which change with it."""

    def add(self, recipe: RecipeLayer) -> None:
        """Add the fields of a recipe."""
        for path in filter(None, map(spec_path, recipe.locked)):
            self.fields.setdefault(path, str(recipe.origin))
            for length in range(1, len(path)):
                self.above.setdefault(path[:length], str(recipe.origin))

    def owner_of(self, path: Path) -> str | None:
        """Return the recipe that locks a field, part of it, or what it is part of."""
        within = (self.fields.get(path[:length]) for length in range(1, len(path) + 1))
        return next(filter(None, within), None) or self.above.get(path)


def locked_violations(recipes: Sequence[RecipeLayer], own: Layer) -> Iterator[Violation]:
    """Report what recipes and the job change of the fields that a recipe below them locks."""
    locks, below = Locks(), EMPTY
    for recipe in recipes:
        yield from _changes(
            f"{recipe.origin}: spec.template", f"{recipe.origin}: spec.unset", merge_layer(recipe), below, locks
        )
        locks.add(recipe)
        below = stack(below, merge_layer(recipe))
    yield from _changes("spec", "spec.unset", own, below, locks)


def _changes(place: str, unset: str, upper: Layer, below: Layer, locks: Locks) -> Iterator[Violation]:
    if not locks.fields:
        return
    known = {path: leaf.value for path, leaf in leaves(below.tree)}
    for path, leaf in leaves(upper.tree):
        owner = locks.owner_of(path)
        if owner is not None and not (path in known and known[path] == leaf.value):
            yield Violation(f"{place}.{path_text(path)}", f"is locked by {owner}, so no job may change it; remove it")
    for path in upper.unset:
        if (owner := locks.owner_of(path)) is not None:
            yield Violation(unset, f"{path_text(path)} is locked by {owner}, so no job may remove it")
