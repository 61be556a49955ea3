"""What moved between two releases: differences of names. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

Names = Mapping[str, frozenset[str]]
"""Group, such as a file or nothing -> the names in it."""
Defaults = Mapping[str, object]
"""Key -> default, or SECTION for a key with keys below it."""
SECTION = object()


def as_names(value: str | tuple[str, ...] | list[str] | Mapping[str, str | list[str]]) -> Names:
    """Return the names of a table's value: words, whole texts, or words by group."""
    if isinstance(value, Mapping):
        return {group: as_names(words)[""] for group, words in value.items()}
    return {"": frozenset(value.split() if isinstance(value, str) else value)}


def names_moved(what: str, old: Names, new: Names) -> Iterator[str]:
    """Yield a line for the names that are gone, and one for those that are new, per group."""
    for group in dict.fromkeys((*old, *new)):
        before, after = old.get(group, frozenset()), new.get(group, frozenset())
        title = f"{what} in {group}" if group else what
        if gone := sorted(before - after):
            yield f"{title}, gone: {', '.join(gone)}"
        if added := sorted(after - before):
            yield f"{title}, new: {', '.join(added)}"


def keys_moved(old: Defaults, new: Defaults, ours: frozenset[str]) -> Iterator[str]:
    """Yield what happened to the keys of a configuration: first what we set, then the rest."""
    gone, added = sorted(old.keys() - new.keys()), sorted(new.keys() - old.keys())
    yield from (f"GONE, and set by us: {key}" for key in gone if key in ours)
    changed = [key for key in sorted(old.keys() & new.keys()) if not _same(old[key], new[key])]
    yield from (f"default of {key}: {_shown(old[key])}, now {_shown(new[key])}" for key in changed)
    if others := [key for key in gone if key not in ours]:
        yield f"keys, gone: {', '.join(others)}"
    if added:
        yield f"keys, new: {', '.join(added)}"


def _same(old: object, new: object) -> bool:
    return type(old) is type(new) and old == new


def _shown(value: object) -> str:
    return "a section" if value is SECTION else json.dumps(value)
