"""Where each value of a job comes from: the job, a recipe, a default or a decision. Pure: returns rows.

A path selects the rows at and below a field. It is accepted in every form that messages print: with or without `spec.`,
with the index or the key of a list's entry, and after the name of a recipe.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rljob.api.field_path import Path, bracketed, member, parse_path
from rljob.api.status import Decision
from rljob.api.v1alpha1 import RecipeKind, RLJobSpec
from rljob.cli.errors import UsageError
from rljob.cli.status import table
from rljob.core.launcher import ClassDefault
from rljob.core.nearest import nearest_field
from rljob.core.spec.merge import LEAF, Keyed, Tree, layer, leaves, path_text, shape_of, stack
from rljob.core.validation.validate import Checked
from rljob.render.configmap import spec_document

DEFAULT_SOURCE = "default"
UNSET, NOBODY = "unset", "nothing sets it, and it has no default"
VALUE_WIDTH = 60
_RECIPE = re.compile(rf"({'|'.join(RecipeKind)}) [^:]{{0,600}}: spec\.template\.")
"""What precedes the field of a recipe's template in a violation."""


@dataclass(frozen=True)
class Row:
    """A field, its value, and who set it."""

    field: str
    value: Any
    source: str


def read_path(text: str) -> Path:
    """Parse a path as messages print it; empty for the whole spec. Raise UsageError if it is none."""
    path = parse_path(_RECIPE.sub("", text)) if text else ()
    if path is None:
        raise UsageError(
            f"{text}: not a path of a field; use one such as trainer.steps or workerGroups[0].template.cpu"
        )
    if path[:1] == ("metadata",):
        raise UsageError(f"{text}: only fields of spec have a source; use a path such as trainer.steps")
    return path[1:] if path[:1] == ("spec",) else path


def explain(checked: Checked, spec: RLJobSpec, decisions: Sequence[Decision], below: Path = ()) -> list[Row]:
    """Return a row for each field at or below a path. Raise UsageError if there is no such field."""
    # The typed spec contains every default; values that a manifest sets take precedence.
    defaults = {"launcher": {"type": spec.launcher.type.value}} | spec_document(spec)
    tree = stack(layer(DEFAULT_SOURCE, defaults), checked.merged).tree
    wanted = _canonical(tree, below)
    decided = {_canonical(tree, parse_path(decision.name) or ()): decision for decision in decisions}
    if rows := [row for path, row in _rows(tree, decided) if path[: len(wanted)] == wanted]:
        return rows
    if (part := _part_of_leaf(tree, wanted)) is not None:
        return [part]
    # A decision about several fields at once, such as the size of a pod, which names them.
    above = [_decision(decision) for path, decision in decided.items() if _names(decision, path, wanted)]
    return above or [_unset(below)]


@dataclass(frozen=True)
class Explained:
    """A job, field by field, and what no field says."""

    rows: Sequence[Row]
    losses: Sequence[str] = ()
    """What the job loses compared with the trainer of the runtime."""
    class_defaults: Sequence[ClassDefault] = ()


def explain_page(job: Explained) -> str:
    """Return the rows as a table, and below it the settings of the accelerator's class and what the job loses."""
    fields = [(row.field, _short(_text(row.value)), row.source) for row in job.rows]
    parts = [table([("FIELD", "VALUE", "FROM"), *fields])]
    if job.class_defaults:
        settings = [(each.key.lstrip("+"), _short(_text(each.value)), each.reason) for each in job.class_defaults]
        parts += ["", "set by the accelerator's class, unless verl.overrides says otherwise:"]
        parts += [table([("KEY", "VALUE", "REASON"), *settings])]
    if job.losses:
        parts += ["", "lost compared with launcher.type Verl:", *(f"  - {each}" for each in job.losses)]
    return "\n".join(parts)


def explain_document(namespace: str, name: str, job: Explained) -> dict[str, Any]:
    """Return the same as data."""
    document: dict[str, Any] = {
        "namespace": namespace,
        "job": name,
        "fields": [{"field": row.field, "value": row.value, "from": row.source} for row in job.rows],
    }
    if job.class_defaults:
        document["classDefaults"] = [
            {"key": each.key.lstrip("+"), "value": each.value, "reason": each.reason} for each in job.class_defaults
        ]
    return document | ({"losses": list(job.losses)} if job.losses else {})


def _rows(tree: Tree, decided: Mapping[Path, Decision]) -> Iterator[tuple[Path, Row]]:
    seen = set()
    for path, leaf in leaves(tree):
        seen.add(path)
        decision = decided.get(path)
        # A requested value is not always available; the decision shows what actually applies.
        if decision is not None and decision.value != _text(leaf.value):
            yield path, _decision(decision)
        elif leaf.source != DEFAULT_SOURCE or leaf.value != []:
            yield path, Row(path_text(path), leaf.value, leaf.source)
    for path, decision in decided.items():
        if path not in seen:
            yield path, _decision(decision)


def _names(decision: Decision, path: Path, wanted: Path) -> bool:
    return wanted[:-1] == path and wanted[-1] in re.findall(r"\w+", decision.value)


def _decision(decision: Decision) -> Row:
    return Row(decision.name, decision.value, f"decision: {decision.reason}")


def _canonical(tree: Tree, path: Path) -> Path:
    """Return a path with the keys of lists' entries in place of their indices."""
    found: list[str] = []
    for part in path:
        name = part
        if isinstance(tree, Keyed):
            entries = {", ".join(key): entry for key, entry in tree.entries.items()}
            if name not in entries and name.isdecimal() and int(name) < len(entries):
                name = list(entries)[int(name)]
            tree = entries.get(name, {})
        else:
            tree = tree.get(name, {}) if isinstance(tree, dict) else {}
        found.append(name)
    return tuple(found)


def _part_of_leaf(tree: Tree, path: Path) -> Row | None:
    """Return the row of a field within a value that is set as a whole, such as a volume; None if it is not set."""
    found = next(((at, leaf) for at, leaf in leaves(tree) if at == path[: len(at)]), None)
    if found is None:
        return None
    at, leaf = found
    value, field = leaf.value, path_text(at)
    for part in path[len(at) :]:
        if isinstance(value, list) and part.isdecimal() and int(part) < len(value):
            value, field = value[int(part)], f"{field}[{part}]"
        elif isinstance(value, dict) and part in value:
            value, field = value[part], member(field, part)
        else:
            return None
    return Row(field, value, leaf.source)


def _unset(path: Path) -> Row:
    """Return the row of a field that nothing sets. Raise UsageError if there is no such field."""
    shape, seen = shape_of(RLJobSpec), "spec"
    for part in path:
        if shape.keys and shape.item is not None:
            shape, seen = shape.item, f"{seen}{bracketed(part)}"
            continue
        if shape.members and part not in shape.members:
            near = nearest_field(part, shape.members)
            fix = f"did you mean {near}?" if near else f"its fields are {', '.join(sorted(shape.members))}"
            raise UsageError(f"{member(seen, part)}: no such field; {fix}")
        shape, seen = shape.member(part) if shape.is_map else LEAF, member(seen, part)
    return Row(seen.removeprefix("spec."), UNSET, NOBODY)


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    flat = text.replace("\n", " ")
    return flat if len(flat) <= VALUE_WIDTH else f"{flat[: VALUE_WIDTH - 1]}…"
