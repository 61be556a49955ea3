"""Label selectors as the API server evaluates them, for the fake, which filters itself."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_TERM = re.compile(r"(?P<not>!?)(?P<key>[\w./-]+)(?:(?P<op>==|=|!=|\s+in\s+|\s+notin\s+)(?P<value>\([^)]*\)|[\w.-]*))?")


def matches(selector: str, labels: Mapping[str, str]) -> bool:
    """Return whether the labels satisfy every term of the selector."""
    return all(_fulfils(term.strip(), labels) for term in _terms(selector))


def _terms(selector: str) -> list[str]:
    # Commas within parentheses separate values of a set, not terms.
    return [term for term in re.split(r",(?![^(]*\))", selector) if term.strip()]


def _fulfils(term: str, labels: Mapping[str, str]) -> bool:
    parsed = _TERM.fullmatch(term)
    if parsed is None:
        raise ValueError(f"label selector term {term!r} is not understood")
    key, value = parsed["key"], parsed["value"] or ""
    match (parsed["op"] or "").strip():
        case "":
            return (key in labels) != bool(parsed["not"])
        case "=" | "==":
            return labels.get(key) == value
        case "!=":
            return labels.get(key) != value
        case operator:
            inside = labels.get(key) in {member.strip() for member in value.strip("()").split(",")}
            return inside == (operator == "in")
