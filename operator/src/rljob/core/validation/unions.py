"""Unions of the API types, checked after the merge: the same rules that CEL enforces on the API server."""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.base import Model
from rljob.core.validation.violation import Violation


def union_violations(value: object, path: str) -> Iterator[Violation]:
    """Yield every union of a typed spec with too few or too many members."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from union_violations(entry, f"{path}[{index}]")
    elif isinstance(value, Model):
        if value.EXACTLY_ONE_OF or value.AT_MOST_ONE_OF or value.MEMBERS_BY_TYPE:
            yield from _of_model(value, path)
        for name, info in type(value).model_fields.items():
            # Most members are scalars, which need neither a walk nor a path.
            if isinstance(member := getattr(value, name), list | Model):
                yield from union_violations(member, f"{path}.{info.alias}")


def _of_model(value: Model, path: str) -> Iterator[Violation]:
    present = _present(value)
    given = [field for field in value.EXACTLY_ONE_OF if field in present]
    if value.EXACTLY_ONE_OF and len(given) != 1:
        yield Violation(path, f"has {_listed(given)}; set exactly one of {', '.join(value.EXACTLY_ONE_OF)}")
    given = [field for field in value.AT_MOST_ONE_OF if field in present]
    if len(given) > 1:
        yield Violation(path, f"has {_listed(given)}; set at most one of them")
    chosen = getattr(value, "type", None)
    for kind, field in value.MEMBERS_BY_TYPE.items():
        if (chosen == kind) != (field in present):
            yield Violation(path, f"type {chosen}: {field} requires type {kind}, and vice versa; set both or neither")


def _present(value: Model) -> set[str]:
    fields = type(value).model_fields
    return {str(info.alias) for name, info in fields.items() if getattr(value, name) not in (None, [])}


def _listed(given: list[str]) -> str:
    return " and ".join(given) or "none"
