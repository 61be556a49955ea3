"""Lists with keys: no key may occur twice, as the API server enforces for the job's own manifest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rljob.api.base import LIST_KEYS, Model
from rljob.core.validation.violation import Violation


def key_violations(value: object, path: str) -> Iterator[Violation]:
    """Yield every entry of a typed spec whose key occurs before."""
    if isinstance(value, list):
        for index, entry in enumerate(value):
            yield from key_violations(entry, f"{path}[{index}]")
    elif isinstance(value, Model):
        for name, info in type(value).model_fields.items():
            member = getattr(value, name)
            if not isinstance(member, list | Model):
                continue
            place = f"{path}.{info.alias}"
            extra = info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}
            keys = extra.get(LIST_KEYS)
            if isinstance(member, list) and isinstance(keys, list):
                yield from _doubled(member, str(keys[0]), place)
            yield from key_violations(member, place)


def _doubled(entries: list[Any], key: str, path: str) -> Iterator[Violation]:
    """Every keyed list of the API has one key."""
    seen: set[str] = set()
    for index, entry in enumerate(entries):
        found = str(_member(entry, key))
        if found in seen:
            yield Violation(f"{path}[{index}].{key}", f"{found} is used twice; rename one")
        seen.add(found)


def _member(entry: Model, key: str) -> object:
    return next(getattr(entry, name) for name, info in type(entry).model_fields.items() if info.alias == key)
