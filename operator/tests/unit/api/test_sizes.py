"""The rule of the CRDs that bounds a spec: nothing whose size varies is left out, and its bound leaves 256 KiB."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from builders import Json
from unit.api.test_crd import CRDS, RECIPE, SPEC, STATUS

from rljob.api.base import RULES
from rljob.api.limits import SPEC_BYTES_MAX, STATUS_BYTES_MAX
from rljob.api.sizes import BYTES_PER_CHARACTER, SHORT, size_of, size_rule

SPECS = {"RLJob": SPEC, "ClusterRLRecipe": RECIPE}


def rule_of(schema: Json) -> str:
    (found,) = [entry["rule"] for entry in schema[RULES] if "KiB as JSON" in entry["message"]]
    return str(found)


def varying(schema: Json) -> Iterator[Json]:
    """Return every list, map and long text below a schema: what has no size of its own."""
    kind = schema.get("type")
    if kind == "array" or "additionalProperties" in schema:
        yield schema
    if kind == "string" and "enum" not in schema and schema["maxLength"] > SHORT:
        yield schema
    for child in (*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")):
        if isinstance(child, dict):
            yield from varying(child)


@pytest.mark.parametrize("kind", SPECS)
def test_the_rule_counts_every_part_whose_size_varies(kind: str) -> None:
    schema, rule = SPECS[kind], rule_of(SPECS[kind])
    parts = list(varying(schema))
    texts = sum(part["type"] == "string" for part in parts)
    maps = sum("additionalProperties" in part for part in parts)
    assert rule.count("size(bytes(") == texts + maps
    assert rule.count(".map(") + len(re.findall(r"size\(self|size\([ek][0-9]", rule)) >= len(parts) - texts
    assert size_rule(schema)["rule"] == rule


@pytest.mark.parametrize("kind", SPECS)
def test_what_does_not_vary_and_the_bound_of_the_rest_are_256_kib(kind: str) -> None:
    schema, rule = SPECS[kind], rule_of(SPECS[kind])
    bound = int(rule.rpartition(" <= ")[2])
    assert size_of(schema, "self").fixed + bound == SPEC_BYTES_MAX == 256 * 1024
    assert bound > 240_000, "the fixed part leaves too little"


def largest(schema: Json) -> int:
    """Return the largest size of a value as JSON, by the bounds of its parts alone."""
    kind = schema["type"]
    if kind == "string":
        if "enum" in schema:
            return max(len(str(value)) for value in schema["enum"]) + 2
        return int(schema["maxLength"]) * BYTES_PER_CHARACTER + 2
    if kind == "array":
        return 2 + int(schema["maxItems"]) * (largest(schema["items"]) + 1)
    if "additionalProperties" in schema:
        key = int(schema.get("x-key", 256))
        return 2 + int(schema["maxProperties"]) * (key + 4 + largest(schema["additionalProperties"]))
    if kind == "object":
        return 2 + sum(len(name) + 4 + largest(child) for name, child in schema["properties"].items())
    return 20


def test_the_status_is_bounded_by_its_parts() -> None:
    assert largest(STATUS) <= STATUS_BYTES_MAX


def test_all_crds_have_the_rule() -> None:
    for crd in CRDS.values():
        schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
        assert rule_of(schema)
