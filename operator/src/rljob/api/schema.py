"""Conversion of pydantic's JSON schema to the structural OpenAPI v3 schema that a CRD requires.

pydantic emits references, nullable unions, titles, defaults and numeric exclusive bounds. The API server rejects the
first two, and a recipe must be able to omit fields that have a default. This module is a pure function of the schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rljob.api.base import LIST_KEYS, MERGE_KEYS

if TYPE_CHECKING:
    from pydantic import BaseModel

Schema = dict[str, Any]
_DROPPED = frozenset({"title", "default", "required", "$defs", "discriminator", "examples", MERGE_KEYS})


class UnsupportedSchemaError(TypeError):
    """A type has no structural form; the message names the path."""


def structural_schema(model: type[BaseModel]) -> Schema:
    """Return the structural schema of a model, without defaults and required fields."""
    raw = model.model_json_schema(by_alias=True, mode="validation")
    return _convert(raw, raw.get("$defs", {}), model.__name__)


def _convert(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Schema:
    node = _resolve(node, definitions)
    if "anyOf" in node:
        node = _without_null(node, definitions, path)
    result: Schema = {}
    for key, value in node.items():
        if key in _DROPPED or (key == "additionalProperties" and value is False):
            continue
        if key == "properties":
            result[key] = {name: _member(child, definitions, path, name) for name, child in value.items()}
        elif key in ("items", "additionalProperties"):
            result[key] = _convert(value, definitions, f"{path}[]") if isinstance(value, Mapping) else value
        elif key == "const":
            result["enum"] = [value]
        elif key == "description":
            result[key] = " ".join(str(value).split())
        else:
            result[key] = value
    if keys := result.get(LIST_KEYS):
        # The API server requires the keys of a map-list in every entry.
        result["items"] = result["items"] | {"required": list(keys)}
    if "allOf" in result or "oneOf" in result:
        raise UnsupportedSchemaError(f"{path}: unions have no structural form; use one type or base.MapAsText")
    return result


def _member(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str, name: str) -> Schema:
    result = _convert(node, definitions, f"{path}.{name}")
    if "description" in result:
        # Kubernetes API conventions ask that a field's comment starts with its name.
        result["description"] = f"{name}: {result['description']}"
    return result


def _resolve(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    if "$ref" not in node:
        return node
    target = definitions[str(node["$ref"]).rsplit("/", 1)[1]]
    return {**target, **{key: value for key, value in node.items() if key != "$ref"}}


def _without_null(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    members = [member for member in node["anyOf"] if member.get("type") != "null"]
    if len(members) != 1:
        raise UnsupportedSchemaError(f"{path}: unions have no structural form; use one type or base.MapAsText")
    outer = {key: value for key, value in node.items() if key != "anyOf"}
    return {**_resolve(members[0], definitions), **outer}
