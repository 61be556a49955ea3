"""Merging a job's spec over its recipes: maps merge deeply, keyed lists by key, unions and other lists are replaced.

The merge works on manifests as written, before types and defaults, and never fails: a value of a wrong shape is kept
for the types to refuse. How a value merges is derived from the API types once. Every leaf keeps the name of the layer
that set it, which `rljob explain` shows.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, reduce
from typing import Any, TypeAlias, Union

from rljob.api.base import LIST_KEYS, MERGE_KEYS, Model
from rljob.api.field_path import Path, bracketed, parse_path
from rljob.api.v1alpha1 import RLJobSpec


@dataclass(frozen=True)
class Shape:
    """How a value merges: as a map with `members` or `rest`, as a keyed list with `keys`, otherwise as a leaf."""

    members: Mapping[str, Shape] = field(default_factory=dict)
    rest: Shape | None = None
    """Shape of every key that is not a member; with None such a key is a leaf, and an error in the manifest."""
    keys: tuple[str, ...] = ()
    item: Shape | None = None

    @property
    def is_map(self) -> bool:
        """Report whether values merge key by key."""
        return bool(self.members) or self.rest is not None

    def member(self, name: str) -> Shape:
        """Return the shape of an entry of a map."""
        return self.members.get(name) or self.rest or LEAF


LEAF = Shape()
OPEN_MAP = Shape(rest=LEAF)


@dataclass(frozen=True)
class Leaf:
    """A value that is replaced as a whole, and the layer that set it."""

    value: Any
    source: str


@dataclass(frozen=True)
class Keyed:
    """A list whose entries merge by key, in the order in which they first appear."""

    entries: Mapping[tuple[str, ...], Tree]


Tree: TypeAlias = "dict[str, Tree] | Keyed | Leaf"


@dataclass(frozen=True)
class Layer:
    """Some fields of a spec, and fields of lower layers to remove."""

    tree: Tree
    unset: tuple[Path, ...] = ()


EMPTY = Layer({})


def layer(source: str, values: Mapping[str, Any], unset: Sequence[str] = ()) -> Layer:
    """Return a layer; invalid paths in `unset` are ignored (see `unset_problem`)."""
    paths = (spec_path(text) for text in unset)
    return Layer(_mark(shape_of(RLJobSpec), dict(values), source), tuple(path for path in paths if path))


def stack(lower: Layer, upper: Layer) -> Layer:
    """Merge a layer over another; associative, with EMPTY as neutral element."""
    below = reduce(_remove, upper.unset, lower.tree)
    return Layer(_overlay(below, upper.tree), (*lower.unset, *upper.unset))


def merge(layers: Sequence[Layer]) -> Layer:
    """Merge layers, the lowest first."""
    return reduce(stack, layers, EMPTY)


def values(merged: Layer) -> dict[str, Any]:
    """Return the merged spec as a manifest."""
    result: dict[str, Any] = _unmark(merged.tree)
    return result


def leaves(tree: Tree, path: Path = ()) -> Iterator[tuple[Path, Leaf]]:
    """Yield every leaf with its path, in the order of the manifest."""
    if isinstance(tree, Leaf):
        yield path, tree
        return
    named = tree.items() if isinstance(tree, dict) else ((", ".join(key), child) for key, child in tree.entries.items())
    for name, child in named:
        yield from leaves(child, (*path, name))


def path_text(path: Path) -> str:
    """Return the text of a path, as `unset` parses it."""
    text, shape = "", shape_of(RLJobSpec)
    for part in path:
        plain = part in shape.members
        text += f".{part}" if plain and text else part if plain else bracketed(part)
        shape = (shape.item or LEAF) if shape.keys else shape.member(part)
    return text


def spec_path(text: str) -> Path | None:
    """Parse a path of `unset` or `locked`, with or without `spec.`, with which violations print it."""
    path = parse_path(text)
    return path[1:] or None if path and path[0] == "spec" else path


def unset_problem(text: str) -> str | None:
    """Return why a path of `unset` names no field, or None if it does."""
    path = spec_path(text)
    if path is None:
        return (
            f"{text!r} is not a path; use one such as trainer.miniBatchSize or workerGroups[trainer].template.env[FOO]"
        )
    shape, seen = shape_of(RLJobSpec), ""
    for part in path:
        if shape.keys and shape.item is not None:
            if part.isdecimal():
                return f"{text!r}: entries of {seen} are named by {shape.keys[0]}, not by index; write {seen}[NAME]"
            shape = shape.item
        elif part in shape.members or shape.rest is not None:
            shape = shape.member(part)
        elif shape.members:
            return f"{text!r}: {seen or 'spec'} has no field {part}; its fields are {', '.join(sorted(shape.members))}"
        else:
            return f"{text!r}: {seen} is replaced as a whole; unset all of it"
        seen = f"{seen}.{part}".lstrip(".")
    return None


@cache
def shape_of(model: type[Model]) -> Shape:
    """Return how values of a type merge."""
    members = {}
    for info in model.model_fields.values():
        name = str(info.alias)
        extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
        keys = tuple(str(key) for key in _texts(extra.get(MERGE_KEYS) or extra.get(LIST_KEYS)))
        members[name] = _shape(info.annotation, keys)
    return Shape(members=members)


def _texts(found: object) -> Sequence[object]:
    return found if isinstance(found, (list, tuple)) else ()


def _shape(annotation: Any, keys: tuple[str, ...]) -> Shape:  # noqa: ANN401 - a type expression
    annotation = _plain(annotation)
    origin = typing.get_origin(annotation)
    if origin is list and keys:
        return Shape(keys=keys, item=_shape(typing.get_args(annotation)[0], ()))
    if origin is dict:
        return OPEN_MAP
    if isinstance(annotation, type) and issubclass(annotation, Model):
        return LEAF if annotation.REPLACED_WHOLE else shape_of(annotation)
    return LEAF


def _plain(annotation: Any) -> Any:  # noqa: ANN401 - a type expression
    """Return a type without Annotated and Optional."""
    origin = typing.get_origin(annotation)
    if origin is typing.Annotated:
        return _plain(typing.get_args(annotation)[0])
    if origin in (Union, types.UnionType):
        return _plain(next(member for member in typing.get_args(annotation) if member is not type(None)))
    return annotation


def _mark(shape: Shape, raw: Any, source: str) -> Tree:  # noqa: ANN401 - JSON of anybody
    if shape.is_map and isinstance(raw, Mapping):
        return {str(name): _mark(shape.member(str(name)), value, source) for name, value in raw.items()}
    if shape.keys and isinstance(raw, list):
        entries = {_key(shape, entry): _mark(shape.item or LEAF, entry, source) for entry in raw}
        # The types refuse repeated and missing keys.
        if None not in entries and len(entries) == len(raw):
            return Keyed(typing.cast("dict[tuple[str, ...], Tree]", entries))
    return Leaf(raw, source)


def _key(shape: Shape, entry: object) -> tuple[str, ...] | None:
    if not isinstance(entry, Mapping):
        return None
    found = tuple(str(entry.get(key, "")) for key in shape.keys)
    return found if any(found) or len(shape.keys) > 1 else None


def _overlay(lower: Tree, upper: Tree) -> Tree:
    if isinstance(lower, dict) and isinstance(upper, dict):
        joined = {name: _overlay(lower[name], tree) if name in lower else tree for name, tree in upper.items()}
        return lower | joined
    if isinstance(lower, Keyed) and isinstance(upper, Keyed):
        entries = {
            key: _overlay(lower.entries[key], tree) if key in lower.entries else tree
            for key, tree in upper.entries.items()
        }
        return Keyed({**lower.entries, **entries})
    return upper


def _remove(tree: Tree, path: Path) -> Tree:
    first, *rest = path
    if isinstance(tree, dict) and first in tree:
        kept = {name: child for name, child in tree.items() if name != first}
        # In its old place, to keep the order of the manifest.
        return {n: _remove(c, tuple(rest)) if n == first else c for n, c in tree.items()} if rest else kept
    if isinstance(tree, Keyed) and (first,) in tree.entries:
        if not rest:
            return Keyed({key: child for key, child in tree.entries.items() if key != (first,)})
        return Keyed({k: _remove(c, tuple(rest)) if k == (first,) else c for k, c in tree.entries.items()})
    return tree


def _unmark(tree: Tree) -> Any:  # noqa: ANN401 - JSON
    if isinstance(tree, dict):
        return {name: _unmark(child) for name, child in tree.items()}
    if isinstance(tree, Keyed):
        return [_unmark(child) for child in tree.entries.values()]
    return tree.value
