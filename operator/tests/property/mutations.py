"""Mutations of manifests by their schema: every field of RLJob.spec with every kind of wrong value.

Used by `test_fuzz`. A mutation consists of a path, of the document or of the schema, and a value. `manifests` mutates
whole documents with their metadata, alone and in lists, and `texts` the text of a file.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from builders import Json
from hypothesis import strategies as st
from schema_samples import leaves, samples

from rljob.api.yaml11 import dump_all

Place = tuple[str | int, ...]
REMOVED = object()
HUGE = (2**31 - 1, 2**31, 2**63, 10**30, -(10**30), 1e308)
TEXTS = (
    "", " ", "\n", "\x00", "é💥", "\ud800", "x" * 5000, "1e999", "-1", "NaN", "1e-6", "9" * 32, "$(HOME)", "../..", "/",
    "a=b", "${x}", "(" * 100, "(a+)+$", "[", "\\",
    "hf_" + "a" * 34, "on", "Infinity", "999999999999999999999999999999Ti",
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from([*TEXTS, *HUGE]) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=6,
)


def places(document: object, place: Place = ()) -> Iterator[Place]:
    """Return every path of a document."""
    yield place
    entries: Any = ()
    if isinstance(document, dict):
        entries = document.items()
    elif isinstance(document, list):
        entries = enumerate(document)
    for key, member in entries:
        yield from places(member, (*place, key))


def fields() -> list[tuple[Place, Mapping[str, Any]]]:
    """Return every field of the schema, in the first entry of each list."""
    return [(tuple(0 if part == "[]" else part for part in path), schema) for path, schema in leaves()]


FIELDS = fields()
KEYS = (
    *(
        "spec",
        "specs",
        "kind",
        "metadata",
        "status",
        "items",
        "trainer",
        "a b",
        "",
        "é",
        "$x",
        "a[b]",
        'a"]',
        "x" * 300,
    ),
    *("name", "generateName", "namespace", "labels", "annotations", "uid", "generation", "label", "metadata"),
)
METADATA: tuple[Json, ...] = (
    {"name": "sums"},
    {"generateName": "sums-"},
    {"name": "sums", "namespace": "team-a", "labels": {"team": "a"}, "annotations": {"example.com/note": "text"}},
    {"name": "sums", "uid": "u", "resourceVersion": "1", "generation": 2, "managedFields": [{"manager": "kubectl"}]},
)
KINDS = ("List", "RLJobList", "ClusterRLRecipeList", "RLJob", "RLRecipe", "ClusterRLRecipe", "ConfigMap", "")


@st.composite
def mutations(draw: st.DrawFn, documents: list[Json]) -> Json:
    """Return one of the documents with one to three changed fields."""
    document = copy.deepcopy(draw(st.sampled_from(documents)))
    for _ in range(draw(st.sampled_from((1, 1, 1, 2, 3)))):
        if draw(st.integers(0, 3)):
            place, schema = draw(st.sampled_from(FIELDS))
            within, about = st.sampled_from(samples(schema)), st.sampled_from(around(schema))
            put(document, place, draw(draw(st.sampled_from((within, within, about, JSON)))))
        else:
            place = draw(st.sampled_from([found for found in places(document) if found] or [("model",)]))
            put(document, place, draw(st.just(REMOVED) | st.sampled_from([None, {}, [], *HUGE, *TEXTS]) | JSON))
    if draw(st.integers(0, 9)) == 0:
        put(document, (*draw(st.sampled_from(list(places(document)))), "unknown"), draw(JSON))
    return document


@st.composite
def manifests(draw: st.DrawFn, documents: list[Json]) -> list[Any]:
    """Return the documents of a file: some of these, changed outside their specs, alone or in lists."""
    found: list[Any] = []
    for index in draw(st.lists(st.integers(0, len(documents) - 1), min_size=1, max_size=2)):
        document: Any = copy.deepcopy(documents[index])
        document["metadata"] = {**copy.deepcopy(draw(st.sampled_from(METADATA))), **document["metadata"]}
        for _ in range(draw(st.integers(0, 3))):
            outside = [place for place in places(document) if place and place[0] != "spec"] + [("spec",)]
            place = outside[draw(st.integers(0, len(outside) - 1))]
            if draw(st.booleans()):
                place = (*place[: draw(st.integers(0, len(place)))], draw(st.sampled_from(KEYS)))
            put(document, place, draw(st.just(REMOVED) | st.sampled_from([None, {}, [], *HUGE, *TEXTS, *KINDS]) | JSON))
        found.append(document)
    for _ in range(draw(st.sampled_from((0, 0, 1, 1, 2)))):
        kind, version = draw(st.sampled_from(KINDS)), draw(st.sampled_from(("v1", "rljob.dev/v1alpha1", None)))
        # By index, because hypothesis would write the documents into a description of the strategy.
        entries = (found, [*found, None, 5], {"a": found}, None)[draw(st.integers(0, 3))]
        found = [{"apiVersion": version, "kind": kind, "items": entries, "metadata": {}}]
    return found


@st.composite
def texts(draw: st.DrawFn, documents: list[Json]) -> str:
    """Return the text of a file, with parts removed, repeated, moved and inserted."""
    chosen = draw(st.lists(st.integers(0, len(documents) - 1), min_size=1, max_size=2))
    text = dump_all([documents[index] for index in chosen])
    for _ in range(draw(st.integers(1, 5))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.sampled_from((0, 0, 1, 3, 30))))
        inserted = draw(st.sampled_from(SYNTAX) | st.text(max_size=5) | st.just(text[begin:end] * 2))
        text = text[:begin] + inserted + text[end:]
    return text


SYNTAX = (
    *("[", "]", "{", "}", ":", ": ", "- ", "? ", ", ", "#", "&a ", "*a", "<<: *a\n", "!!float ", "!!binary x", "!x "),
    *(
        "|",
        ">",
        "---\n",
        "...\n",
        "%YAML 1.1\n",
        "%TAG ! x\n",
        "\n",
        "\t",
        "  ",
        "'",
        '"',
        '"\\ud800"',
        "\x00",
        "\ufeff",
    ),
    *("[" * 200, "{a: " * 200, "- " * 200, "9" * 400, "0x" + "f" * 40, "1e999", ".nan", "~", "2026-01-01", "1:30"),
)


def around(schema: Mapping[str, Any]) -> list[Any]:
    """Return values within the schema, at its bounds and just beyond."""
    values = [*samples(schema), REMOVED, None]
    if schema.get("type") == "integer":
        low, high = schema.get("minimum", 0), schema.get("maximum", 2**31 - 1)
        values += [low - 1, low, high, high + 1, 2, 3, 4, 7, 8, 16, 64, 1000]
    if schema.get("type") == "string":
        longest = schema.get("maxLength", 64)
        values += ["1" * longest, "/" + "x" * longest, "0", "1", "2Gi", "1e-6", *TEXTS]
    if schema.get("type") == "array":
        values += [[], samples(schema)[0] * (schema.get("maxItems", 8) + 1)]
    return values


def put(document: Any, place: Place, value: object) -> None:  # noqa: ANN401 - JSON
    """Set or remove the value at a path as far as the document has it; missing parts are created."""
    node = document
    for part, following in pairwise(place):
        fresh: Any = [] if isinstance(following, int) else {}
        if isinstance(node, dict) and isinstance(part, str):
            node = node.setdefault(part, fresh)
        elif isinstance(node, list) and isinstance(part, int):
            if part >= len(node):
                node.append(fresh)
            node = node[min(part, len(node) - 1)]
        else:
            return
    last = place[-1]
    if isinstance(node, dict) and isinstance(last, str):
        node.pop(last, None) if value is REMOVED else node.__setitem__(last, copy.deepcopy(value))
    elif isinstance(node, list) and isinstance(last, int):
        node[last : last + 1] = [] if value is REMOVED else [copy.deepcopy(value)]
