"""What may change in a job that began, and when it takes effect: the mutability table, and the difference of two specs.

An edit is merged over the recipes that were frozen with the job. What differs from the frozen spec is listed in the
condition PendingChanges, and the next cluster generation takes it.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.merge import Path, layer, leaves, path_text
from rljob.core.validation.violation import Violation
from rljob.render.configmap import spec_document
from rljob.render.metadata import canonical_json, digest

LISTED_MAX = 10
"""Differences that a message spells out."""
VALUE_CHARACTERS = 60


class ChangeEffect(enum.StrEnum):
    """When an edit of a field takes effect."""

    AT_ONCE = "at once"
    NEXT_GENERATION = "next cluster generation"
    NEVER = "never"


@dataclass(frozen=True)
class Rule:
    """One row of the mutability table."""

    field: str
    """A field of the spec; `*` stands for all that have no row of their own."""
    effect: ChangeEffect
    meaning: str


MUTABILITY: tuple[Rule, ...] = (
    Rule("suspend", ChangeEffect.AT_ONCE, "true frees the NPUs, false goes on"),
    Rule("deadlines", ChangeEffect.AT_ONCE, "counted from the same moments as before"),
    Rule("restart", ChangeEffect.AT_ONCE, "judged at the next failure"),
    Rule("cleanup", ChangeEffect.AT_ONCE, "judged at the end"),
    Rule("stop", ChangeEffect.AT_ONCE, "judged at the next request to stop"),
    Rule("trainer.steps", ChangeEffect.NEXT_GENERATION, "may grow, not shrink (CEL, and again after the merge)"),
    Rule("code.configMap", ChangeEffect.NEVER, "copied when the job began; create the job anew"),
    Rule("managedBy", ChangeEffect.NEVER, "CEL refuses the edit; create the job anew"),
    Rule("recipeRef", ChangeEffect.NEXT_GENERATION, "and the recipes are then read anew"),
    Rule("*", ChangeEffect.NEXT_GENERATION, "listed in the condition PendingChanges"),
)
_AT_ONCE = frozenset(row.field for row in MUTABILITY if row.effect is ChangeEffect.AT_ONCE)


@dataclass(frozen=True)
class Difference:
    """One field in which two specs differ."""

    path: Path
    before: str
    after: str

    @property
    def effect(self) -> ChangeEffect:
        """When the edit of a running job would take effect."""
        text = path_text(self.path)
        rows = [row for row in MUTABILITY if text == row.field or text.startswith((f"{row.field}.", f"{row.field}["))]
        return max(rows, key=lambda row: len(row.field), default=MUTABILITY[-1]).effect

    def __str__(self) -> str:
        """Give the line that users see: `trainer.learningRate: 1e-6 -> 1e-5`."""
        return f"{path_text(self.path)}: {self.before} -> {self.after}"


def training_document(spec: RLJobSpec) -> dict[str, Any]:
    """Give all that a running job does not read again."""
    return {name: section for name, section in spec_document(spec).items() if name not in _AT_ONCE}


def training_hash(spec: RLJobSpec) -> str:
    """Tell specs apart by all that a running job does not read again."""
    return digest(training_document(spec))


def differences(frozen: RLJobSpec, wanted: RLJobSpec) -> tuple[str, ...]:
    """List what the next cluster generation would take, a text a field."""
    return tuple(map(str, _compare(training_document(frozen), training_document(wanted))))


def compare(before: RLJobSpec, after: RLJobSpec) -> tuple[Difference, ...]:
    """List every field in which two specs differ, in the order of the spec."""
    return tuple(_compare(spec_document(before), spec_document(after)))


def _compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    old, new = _leaves(before), _leaves(after)
    # In the order of the spec; what is gone stands where it was.
    for path in dict.fromkeys([*new, *old]):
        was = _text(old[path]) if path in old else "unset"
        will = _text(new[path]) if path in new else "unset"
        if old.get(path) != new.get(path) or (path in old) != (path in new):
            yield Difference(path, was, will)


def listed(changes: tuple[str, ...]) -> str:
    """Join differences to a text of bounded length."""
    more = len(changes) - LISTED_MAX
    return "; ".join(changes[:LISTED_MAX]) + (f"; and {more} more" if more > 0 else "")


def change_violations(frozen: RLJobSpec, wanted: RLJobSpec) -> Iterator[Violation]:
    """Give what CEL cannot see, because a recipe may set the field."""
    before, after = frozen.trainer.steps, wanted.trainer.steps
    if after < before:
        yield Violation(
            "spec.trainer.steps", f"{after} is less than the {before} that the job began with; it may grow, not shrink"
        )
    copied, named = frozen.code.config_map, wanted.code.config_map
    if copied is not None and named is not None and named != copied:
        yield Violation(
            "spec.code.configMap",
            f"{named.name}, but {copied.name} was copied when the job began, once and for all; create the job anew",
        )


def _leaves(document: Mapping[str, Any]) -> dict[Path, Any]:
    return {path: leaf.value for path, leaf in leaves(layer("", document).tree)}


def _text(value: object) -> str:
    text = value if isinstance(value, str) else canonical_json(value)
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"
