"""Fields that this version accepts and does not implement yet.

Setting one is reported by `rljob validate`, in the condition Validated and by one event. A field that is implemented
leaves the table; a test compares the table with what is rendered, in both directions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rljob.api.base import Model
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Violation


@dataclass(frozen=True)
class Unimplemented:
    """A field without effect."""

    field: str
    """Path below spec; `[]` stands for every entry of a list."""
    instead: str
    """What happens instead."""


TABLE: tuple[Unimplemented, ...] = ()


def unimplemented_fields(spec: RLJobSpec, table: tuple[Unimplemented, ...] = TABLE) -> tuple[Violation, ...]:
    """Return a warning for every field of the table that differs from its default."""
    return tuple(
        Violation(f"spec.{place}", f"has no effect in this version: {row.instead}")
        for row in table
        for place in _set_places(spec, row.field.split("."), "")
    )


def _set_places(value: object, path: list[str], place: str) -> Iterator[str]:
    """Yield the paths at which a field differs from its default."""
    name, *rest = path
    if not isinstance(value, Model):
        return
    plain = name.removesuffix("[]")
    field, info = next((key, info) for key, info in type(value).model_fields.items() if info.alias == plain)
    member, here = getattr(value, field), f"{place}.{plain}".lstrip(".")
    if not rest:
        if member != info.get_default(call_default_factory=True):
            yield here
    elif isinstance(member, list):
        for index, entry in enumerate(member):
            yield from _set_places(entry, rest, f"{here}[{index}]")
    else:
        yield from _set_places(member, rest, here)
