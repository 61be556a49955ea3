"""Fields of an RLJob by their path in the manifest: their choices, and how to set one. Pure."""

from __future__ import annotations

from typing import Any

from rljob.api.v1alpha1 import RLJobSpec

Json = dict[str, Any]
_SCHEMA: Json = RLJobSpec.model_json_schema(by_alias=True)


def choices(name: str) -> list[object]:
    """Return the values of a field with a closed set of them."""
    schema = _schema(name)
    return [schema["const"]] if "const" in schema else list(schema.get("enum", ()))


def item_choices(name: str) -> list[object]:
    """Return the values that the members of a list may have."""
    return list(_schema(name).get("items", {}).get("enum", ()))


def put(spec: Json, name: str, value: object) -> None:
    """Set a field, such as trainer.offload.parameters or workerGroups[].nodes, which is that of the first group."""
    *parents, last = name.split(".")
    for part in parents:
        spec = spec[part.removesuffix("[]")][0] if part.endswith("[]") else spec.setdefault(part, {})
    spec[last] = value


def _schema(name: str) -> Json:
    """Return the JSON schema of a field, references resolved."""
    node = _SCHEMA
    for part in name.split("."):
        node = _resolved(node).get("properties", {}).get(part.removesuffix("[]"), {})
        if part.endswith("[]"):
            node = _resolved(node).get("items", {})
    return _resolved(node)


def _resolved(node: Json) -> Json:
    options = [option for option in node.get("anyOf", (node,)) if option.get("type") != "null"]
    reference = options[0].get("$ref", "")
    found: Json = _SCHEMA["$defs"][reference.rsplit("/", 1)[1]] if reference else options[0]
    return found
