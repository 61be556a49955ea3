"""Values by schema: every field of RLJob.spec with a valid value, for tests that try each field."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator, Mapping
from typing import Any

from builders import Json

from rljob.api.crd import build_rljob_crd

Path = tuple[str, ...]
"""Names of fields; `[]` stands for the entries of a list."""
TEXTS = (
    *("sample", "sample: sample", "/sample", "7", "7Gi", "7.7.7", "https://sample.example/x", "7" * 40),
    *("sample/sample", "7" * 64, f"sample==7 --hash=sha256:{'7' * 64}"),
)


def spec_schema() -> Json:
    """Return the schema of RLJob.spec as the API server has it."""
    schema: Json = build_rljob_crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return schema


def leaves(schema: Mapping[str, Any] | None = None, path: Path = ()) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Walk the schema down to the fields that are not structures."""
    schema = spec_schema() if schema is None else schema
    if "properties" in schema:
        for name, child in schema["properties"].items():
            yield from leaves(child, (*path, name))
    elif schema.get("type") == "array" and "properties" in schema["items"]:
        yield from leaves(schema["items"], (*path, "[]"))
    else:
        yield path, schema


def samples(schema: Mapping[str, Any]) -> list[Any]:
    """Return values that the schema accepts."""
    kind = schema.get("type")
    if "enum" in schema:
        return list(schema["enum"])
    if kind == "boolean":
        return [True, False]
    if kind == "integer":
        low, high = schema.get("minimum", 0), schema.get("maximum", 2**31 - 1)
        return [number for number in (low + 1, low + 6, low) if number <= high]
    if kind == "string":
        fit = (text for text in TEXTS if re.search(schema.get("pattern", ""), text))
        return [text for text in fit if len(text) <= schema.get("maxLength", len(text))]
    if kind == "array":
        return [[entry] for entry in samples(schema["items"])]
    if "additionalProperties" in schema:
        return [{"sample": value} for value in samples(schema["additionalProperties"])]
    if "properties" in schema:
        return [{name: samples(child)[0] for name, child in schema["properties"].items()}]
    raise AssertionError(f"teach samples {schema}")


def with_value(document: Json, path: Path, value: object, entry: int = 0) -> Json:
    """Return a copy with the value at a path, in one entry of every list on the way; the rest is shared."""
    result = copy.copy(document)
    node: Any = result
    for name, following in zip(path, (*path[1:], ""), strict=True):
        place = entry if name == "[]" else name
        if following == "":
            node[place] = value
            break
        known = name == "[]" or name in node
        node[place] = copy.copy(node[place]) if known else [{}] if following == "[]" else {}
        node = node[place]
    return result


def text(path: Path) -> str:
    """Format a path as the reference does: workerGroups[].template.env[].name."""
    return ".".join(path).replace(".[]", "[]")
