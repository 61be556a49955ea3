"""Write the table of what released verl's configuration knows (rljob_runtime/planning/tables/verl.json).

verl's wheel contains its composed configuration per engine (`_generated_ppo_*trainer.yaml`), the dataclasses into which
sections are converted, and the code that reads keys which the schema lacks. The operator compares overrides with this
table, so that a misspelt key is refused before NPUs are held. A seam test composes the configuration of the installed
verl and compares it. Run it when the pin changes:

    pip download --no-deps -d <folder> verl==0.9.1
    python -m upstream.verl_names <folder>/verl-*.whl
"""

from __future__ import annotations

import ast
import email
import hashlib
import json
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from upstream.name_tables import write_table

CONFIG = "verl/trainer/config/_generated_ppo_{}.yaml"
ENGINES = {"DP": "trainer", "MEGATRON": "megatron_trainer"}
"""Name in the table -> suffix of the composed configuration: the engines that trainer.backend selects."""
PACKAGE = "verl/"
NAME = re.compile(r"[A-Za-z_]\w*")
LOOKUPS = frozenset({"get", "pop", "setdefault"})

Keys = dict[str, str]
"""Key -> `=value` with the default as JSON without spaces, or an empty text for a section."""


def composed(node: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield every key of a composed configuration."""
    for name, value in node.items():
        if isinstance(value, dict) and value:
            yield f"{path}{name}", ""
            yield from composed(value, f"{path}{name}.")
        else:
            text = json.dumps(value, separators=(",", ":")).replace(" ", "\\u0020")
            yield f"{path}{name}", f"={text}"


def class_fields(trees: Mapping[str, ast.Module]) -> dict[str, set[str]]:
    """Return the fields of every class by its name, those of its bases included."""
    own: dict[str, tuple[set[str], list[str]]] = {}
    for tree in trees.values():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                fields = {
                    line.target.id
                    for line in node.body
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
                }
                own[node.name] = (fields, [base.id for base in node.bases if isinstance(base, ast.Name)])

    def whole(name: str) -> set[str]:
        fields, bases = own.get(name, (set(), []))
        return fields.union(*(whole(base) for base in bases if base != name))

    return {name: whole(name) for name in own}


def looked_up(tree: ast.AST) -> Iterator[str]:
    """Yield the names that a module looks up: by get, index, `in` and getattr, and as attributes of a configuration."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr=attr), args=[ast.Constant(value=str(name)), *_]) if attr in LOOKUPS:
                yield name
            case ast.Call(func=ast.Name(id="getattr" | "hasattr"), args=[_, ast.Constant(value=str(name)), *_]):
                yield name
            case ast.Call(func=ast.Attribute(attr="select"), args=[_, ast.Constant(value=str(name)), *_]):
                yield from name.split(".")
            case ast.Subscript(slice=ast.Constant(value=str(name))) | ast.Compare(left=ast.Constant(value=str(name))):
                yield name
            case ast.Attribute(attr=name) if any("config" in part or "cfg" in part for part in _chain(node.value)):
                yield name


def _chain(node: ast.expr) -> Iterator[str]:
    while isinstance(node, ast.Attribute):
        yield node.attr
        node = node.value
    if isinstance(node, ast.Name):
        yield node.id


def by_section(keys: Keys) -> dict[str, list[str]]:
    """Return the words of each section; the top level has an empty name."""
    sections: dict[str, list[str]] = {}
    for key, value in sorted(keys.items()):
        section, _, name = key.rpartition(".")
        sections.setdefault(section, []).append(name + value)
    return sections


def targets(keys: Keys) -> set[str]:
    """Return the names of the classes into which verl converts sections."""
    found = {json.loads(value[1:]) for key, value in keys.items() if key.endswith("._target_")}
    return {str(target).rpartition(".")[2] for target in found if target}


def key_tables(keys: Mapping[str, Keys]) -> dict[str, dict[str, list[str]]]:
    """Return the keys that all engines have with one default, and those of each engine, by section."""
    common = {key: value for key, value in keys["DP"].items() if keys["MEGATRON"].get(key) == value}
    own = {engine: {key: value for key, value in found.items() if key not in common} for engine, found in keys.items()}
    return {name: dict(sorted(by_section(found).items())) for name, found in {"COMMON": common, **own}.items()}


def main() -> None:
    """Write the table."""
    path = Path(sys.argv[1])
    wheel = zipfile.ZipFile(path)
    info = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    version = email.message_from_bytes(wheel.read(info))["Version"]
    keys = {suffix: dict(composed(yaml.safe_load(wheel.read(CONFIG.format(file))))) for suffix, file in ENGINES.items()}
    trees = {
        name: ast.parse(wheel.read(name))
        for name in wheel.namelist()
        if name.startswith(PACKAGE) and name.endswith(".py")
    }
    classes = class_fields(trees)
    wanted = sorted(set().union(*map(targets, keys.values())))
    known = {key.rpartition(".")[2] for own in keys.values() for key in own}
    read = {name for tree in trees.values() for name in looked_up(tree) if NAME.fullmatch(name)} - known
    table = {
        "version": version,
        "wheelSha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "keys": key_tables(keys),
        "fields": {name: sorted(classes[name]) for name in wanted},
        "read": sorted(read),
    }
    write_table("verl.json", table)


if __name__ == "__main__":
    main()
