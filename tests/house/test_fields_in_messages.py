"""Every field of an RLJob that a message names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SOURCES = ("operator/src/rljob", "runtime/src/rljob_runtime")
FIELD = re.compile(
    r"(?<![\w./`$-])(?:(?P<root>spec|status)\.)?"
    r"(?P<path>[a-z][A-Za-z]+(?:\[[^\]\s]*\])?(?:\.[a-z][A-Za-z]*(?:\[[^\]\s]*\])?)+)(?![\w/(-])"
)
OTHERS = {
    "data.shuffle": "a key of verl",
    "rollout.html": "a file",
    "stop.file": "the message begins with launcher.command",
    "verl.plugins": "a group of entry points",
    "verl.tools": "a package",
}
"""What looks like a field and is none."""


def texts() -> Iterator[tuple[str, str]]:
    """Yield place and text of each string literal with more than one word, without docstrings."""
    for path in (path for source in SOURCES for path in sorted((ROOT / source).rglob("*.py"))):
        tree = ast.parse(path.read_text())
        alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            if not isinstance(node, ast.Constant) or id(node) in alone:
                continue
            if isinstance(node.value, str) and " " in node.value:
                yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def exists(parts: list[str], schema: Mapping[str, Any]) -> bool:
    for part in parts:
        below = schema.get("items", schema)
        if "additionalProperties" in below or below.get("x-kubernetes-preserve-unknown-fields"):
            return True
        if part not in below.get("properties", {}):
            return False
        schema = below["properties"][part]
    return True


def unknown(text: str, schema: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a text names below spec or status, or below a section of the spec, that does not exist."""
    for found in FIELD.finditer(text):
        parts = re.sub(r"\[.*?\]", "", found["path"]).split(".")
        below = schema["properties"][found["root"] or "spec"]
        if (found["root"] or parts[0] in below["properties"]) and not exists(parts, below):
            yield found[0]


def schema_of_jobs() -> Mapping[str, Any]:
    crd = yaml.safe_load((ROOT / "crds" / "rljobs.rljob.dev.yaml").read_text())
    found: Mapping[str, Any] = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return found


def test_messages_name_fields_that_exist() -> None:
    schema, seen = schema_of_jobs(), set()
    for place, text in texts():
        for name in unknown(text, schema):
            seen.add(name)
            assert name in OTHERS, f"{place}: {name} is no field of an RLJob; name one that is, with its whole path"
    assert seen == OTHERS.keys(), "OTHERS has an entry that no message needs"


def test_a_wrong_field_is_seen() -> None:
    schema = schema_of_jobs()
    assert list(unknown("create it, or correct runtime.volumes.", schema)) == ["runtime.volumes"]
    assert list(unknown("set spec.trainer.step, or status.nothing.here", schema)) == [
        "spec.trainer.step",
        "status.nothing.here",
    ]
    assert (
        list(unknown("set workerGroups[0].template.cpu in spec.head.template, see trainer/config.yaml", schema)) == []
    )
