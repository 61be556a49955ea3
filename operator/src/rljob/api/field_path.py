"""Paths of fields, such as `trainer.steps` or `workerGroups[trainer].template.env[FOO]`, as text and as parts.

Violations print them, `spec.unset` and `rljob explain` parse them: what is printed is accepted. A name that is not a
plain word stands in brackets, and in quotes if it contains a bracket or a quote.
"""

from __future__ import annotations

import json
import re

Path = tuple[str, ...]
"""Names of fields; an entry of a keyed list, or of a map, is its key."""
_WORD = re.compile(r"[A-Za-z_$][A-Za-z0-9_-]*")
_OVERRIDE = re.compile(r"((?:spec\.)?[a-z]+\.overrides)\[(.*)\]", re.DOTALL)
_BARE = re.compile(r"[^\[\]\"\n]+")


def member(path: str, name: str) -> str:
    """Return the path of a field, or of a key of a map."""
    return f"{path}.{name}" if _WORD.fullmatch(name) else f"{path}{bracketed(name)}"


def bracketed(name: str) -> str:
    """Return a key in brackets."""
    return f"[{name if _BARE.fullmatch(name) else json.dumps(name)}]"


def parse_path(text: str) -> Path | None:
    """Parse a path; None where it is invalid."""
    return _parse(text) or _override(text)


def _override(text: str) -> Path | None:
    """Parse the path of an override, whose key launchers print as it is."""
    found = _OVERRIDE.fullmatch(text)
    return (*found[1].split("."), found[2]) if found else None


def _parse(text: str) -> Path | None:
    parts: list[str] = []
    place = 0
    while place < len(text):
        found = _bracket(text, place) if text[place] == "[" else _word(text, place)
        if found is None or (place == 0 and text[0] == "["):
            return None
        part, place = found
        parts.append(part)
    return tuple(parts) or None


def _word(text: str, place: int) -> tuple[str, int] | None:
    """Return the name at a place, after a dot unless it is the first one, and where it ends."""
    begin = place + (text[place] == "." and place > 0)
    if begin == place and place > 0:
        return None
    found = _WORD.match(text, begin)
    return (found[0], found.end()) if found else None


def _bracket(text: str, place: int) -> tuple[str, int] | None:
    """Return the key in the brackets that open at a place, and where they end."""
    if text.startswith('["', place):
        try:
            name, end = json.JSONDecoder().raw_decode(text, place + 1)
        except ValueError:
            return None
        return (str(name), end + 1) if text.startswith("]", end) else None
    depth = 0
    for index in range(place, len(text)):
        depth += (text[index] == "[") - (text[index] == "]")
        if depth == 0:
            return (text[place + 1 : index], index + 1) if index > place + 1 else None
    return None
