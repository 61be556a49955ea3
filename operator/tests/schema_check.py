"""Validate documents by the structural schema of a CRD, like the API server, and more strictly about unknown keys.

It supports the keywords of our CRDs and fails for any other, so that it cannot silently check less. The library
jsonschema ignores those that it does not know, among them Kubernetes' keys of lists, takes 1.0 for an integer, and
needs seven times as long, which the property tests would ask for at every step.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from rljob.api.base import LIST_KEYS, LIST_TYPE, RULES

_TYPES = {"object": dict, "array": list, "string": str, "integer": int, "boolean": bool}
_KNOWN = frozenset(
    {
        "type", "description", "properties", "additionalProperties", "items", "required", "enum", "pattern", "format",
        "minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "maxProperties",
        LIST_TYPE, LIST_KEYS, RULES,
    }
)  # fmt: skip


def violations(schema: Mapping[str, Any], value: object, path: str = "") -> Iterator[str]:
    """Return what the document violates, each with its path."""
    assert set(schema) <= _KNOWN, f"{path}: teach this judge {set(schema) - _KNOWN}"
    kind = _TYPES[schema["type"]]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        yield f"{path}: {value!r} is no {schema['type']}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: {value!r} is none of {schema['enum']}"
    if isinstance(value, str):
        yield from _text(schema, value, path)
    elif isinstance(value, dict):
        yield from _object(schema, value, path)
    elif isinstance(value, list):
        yield from _list(schema, value, path)
    elif isinstance(value, int) and not schema.get("minimum", value) <= value <= schema.get("maximum", value):
        yield f"{path}: {value} is out of bounds"


def _text(schema: Mapping[str, Any], value: str, path: str) -> Iterator[str]:
    if not schema.get("minLength", 0) <= len(value) <= schema.get("maxLength", len(value)):
        yield f"{path}: {len(value)} characters"
    if "pattern" in schema and not re.search(schema["pattern"], value):
        yield f"{path}: {value!r} does not match {schema['pattern']}"
    if schema.get("format") == "date-time":
        try:
            datetime.fromisoformat(value)
        except ValueError:
            yield f"{path}: {value!r} is no time"


def _object(schema: Mapping[str, Any], value: Mapping[str, Any], path: str) -> Iterator[str]:
    properties, extra = schema.get("properties", {}), schema.get("additionalProperties")
    yield from (f"{path}.{key}: missing" for key in schema.get("required", ()) if key not in value)
    if len(value) > schema.get("maxProperties", len(value)):
        yield f"{path}: {len(value)} entries"
    for key, member in value.items():
        if key in properties:
            yield from violations(properties[key], member, f"{path}.{key}")
        elif isinstance(extra, Mapping):
            yield from violations(extra, member, f"{path}.{key}")
        else:
            yield f"{path}.{key}: unknown"


def _list(schema: Mapping[str, Any], value: list[Any], path: str) -> Iterator[str]:
    if not schema.get("minItems", 0) <= len(value) <= schema.get("maxItems", len(value)):
        yield f"{path}: {len(value)} entries"
    for index, member in enumerate(value):
        yield from violations(schema["items"], member, f"{path}[{index}]")
    if keys := schema.get(LIST_KEYS):
        seen = [tuple(member.get(key) for key in keys) for member in value]
        yield from (f"{path}: {key} twice" for key in sorted({str(key) for key in seen if seen.count(key) > 1}))
