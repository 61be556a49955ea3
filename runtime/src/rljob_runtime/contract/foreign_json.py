"""The one decoder for JSON that somebody else wrote: pods, users, and anybody who can edit a ConfigMap or a log.

`json.loads` fails on such texts in ways that are no ValueError (RecursionError at some nesting), or returns what fails
later: infinities, integers that no float holds, halves of surrogate pairs that no file can store. Here everything is
bounded before it is parsed, in time linear in the text, and every refusal is a `ForeignJSONError`.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any

SIZE_MAX = 1024 * 1024
"""The size of a ConfigMap's data (k8s.io/kubernetes pkg/apis/core/types.go, MaxSecretSize): nothing that is read here
is larger."""
NESTING_MAX = 64
"""Pod templates and frozen manifests need about twenty levels; Python's parser gives up near a thousand."""
INTEGER_MAX = 2**63 - 1
"""Kubernetes reads larger integers as floats (k8s.io/apimachinery pkg/util/json/json.go)."""
INTEGER_CHARACTERS = 20
QUOTED_CHARACTERS = 60

# A string is one token, so that its brackets do not count. Possessive: nothing is tried twice.
_TOKEN = re.compile(r'"(?:[^"\\]++|\\.)*+"?+|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class ForeignJSONError(ValueError):
    """The text is no JSON within the bounds; the message says why."""


def parse(data: bytes | str, size_max: int = SIZE_MAX) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of a JSON text. Raises ForeignJSONError."""
    if len(data) > size_max:
        raise ForeignJSONError(f"{len(data)} bytes or characters, more than {size_max}")
    try:
        text = data if isinstance(data, str) else data.decode()
        _expect_shallow(text)
        value = json.loads(
            text, parse_int=_integer, parse_float=_number, parse_constant=_constant, object_pairs_hook=_object
        )
    except UnicodeDecodeError as error:
        raise ForeignJSONError(f"not UTF-8 at byte {error.start}") from error
    except json.JSONDecodeError as error:
        raise ForeignJSONError(str(error)) from error
    return _legible(value) if _SURROGATE.search(text) or not text.isascii() else value


def legible(text: str) -> str:
    """Escape characters that UTF-8 cannot encode, such as half of a surrogate pair where a library truncated a text."""
    return text.encode("utf-8", "backslashreplace").decode()


def _expect_shallow(text: str) -> None:
    if text.count("[") + text.count("{") <= NESTING_MAX:
        return
    depth = 0
    for token in _TOKEN.finditer(text):
        if token[0] in ("[", "{"):
            depth += 1
            if depth > NESTING_MAX:
                raise ForeignJSONError(f"more than {NESTING_MAX} levels of nesting")
        elif token[0] in ("]", "}"):
            depth -= 1


def _integer(digits: str) -> int:
    if len(digits) > INTEGER_CHARACTERS or abs(int(digits)) > INTEGER_MAX:
        raise ForeignJSONError(f"the integer {_shown(digits)} exceeds 64 bits")
    return int(digits)


def _number(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ForeignJSONError(f"the number {_shown(digits)} exceeds a float")
    return value


def _constant(word: str) -> Any:  # noqa: ANN401 - json's signature
    raise ForeignJSONError(f"{word} is not JSON")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ForeignJSONError("an object has the same key twice")
    return found


def _legible(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value without halves of surrogate pairs; its nesting is bounded already."""
    match value:
        case str():
            return legible(value)
        case list():
            return [_legible(member) for member in value]
        case dict():
            return {legible(key): _legible(member) for key, member in value.items()}
    return value


def _shown(digits: str) -> str:
    return digits if len(digits) <= QUOTED_CHARACTERS else f"{digits[:QUOTED_CHARACTERS]}…"
