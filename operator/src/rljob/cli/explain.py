"""Where each value of a job comes from: the job, a recipe, a default or a decision. Pure: returns text."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from rljob.api.status import Decision
from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.status import table
from rljob.core.spec.merge import layer, leaves, path_text, stack
from rljob.core.validation.validate import Checked
from rljob.render.configmap import spec_document

DEFAULT_SOURCE = "default"
VALUE_WIDTH = 60


def explain(checked: Checked, spec: RLJobSpec, decisions: Sequence[Decision], below: str = "") -> str:
    """Return a row for each field at or below a path, with its value and source."""
    rows = [row for row in _rows(checked, spec, decisions) if _lies_below(row[0], below)]
    return table([("FIELD", "VALUE", "FROM"), *rows]) if rows else ""


def _rows(checked: Checked, spec: RLJobSpec, decisions: Sequence[Decision]) -> Iterator[tuple[str, str, str]]:
    decided = {decision.name: decision for decision in decisions}
    # The typed spec contains every default; values that a manifest sets take precedence.
    everything = stack(layer(DEFAULT_SOURCE, spec_document(spec)), checked.merged)
    for path, leaf in leaves(everything.tree):
        field = path_text(path)
        decision = decided.pop(field, None)
        # A requested value is not always available; the decision shows what actually applies.
        if decision is not None and decision.value != _text(leaf.value):
            yield field, _short(decision.value), f"decision: {decision.reason}"
        elif leaf.source != DEFAULT_SOURCE or leaf.value != []:
            yield field, _short(_text(leaf.value)), leaf.source
    for decision in decided.values():
        yield decision.name, _short(decision.value), f"decision: {decision.reason}"


def _lies_below(field: str, path: str) -> bool:
    return not path or field == path or field.startswith((f"{path}.", f"{path}["))


def _text(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _short(text: str) -> str:
    return text if len(text) <= VALUE_WIDTH else f"{text[: VALUE_WIDTH - 1]}…"
