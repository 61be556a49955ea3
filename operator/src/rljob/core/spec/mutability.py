"""What may change in a job that has begun, and when it takes effect: the mutability table, and the diff of two specs.

An edit is merged over the recipes that were frozen with the job. Fields that differ from the frozen spec are listed in
the condition PendingChanges and take effect with the next cluster generation.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api.field_path import Path
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.merge import layer, leaves, path_text
from rljob.core.validation.violation import Violation
from rljob.render.configmap import spec_document
from rljob.render.metadata import canonical_json, digest

LISTED_MAX = 10
"""Differences that a message lists."""
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
    """A field of the spec; `*` stands for all fields without a row."""
    effect: ChangeEffect
    meaning: str


MUTABILITY: tuple[Rule, ...] = (
    Rule("suspend", ChangeEffect.AT_ONCE, "true frees the NPUs, false resumes"),
    Rule("deadlines", ChangeEffect.AT_ONCE, "counted from the same starting points as before"),
    Rule("restart", ChangeEffect.AT_ONCE, "applied at the next failure"),
    Rule("cleanup", ChangeEffect.AT_ONCE, "applied at the end"),
    Rule("export", ChangeEffect.AT_ONCE, "applied to the next export, also of a finished job"),
    Rule("evaluation", ChangeEffect.AT_ONCE, "applied to the next evaluation, also of a finished job"),
    Rule("stop", ChangeEffect.AT_ONCE, "applied at the next request to stop"),
    Rule("stop.requested", ChangeEffect.AT_ONCE, "true ends the job after a checkpoint; false does not take it back"),
    Rule("trainer.steps", ChangeEffect.NEXT_GENERATION, "may only grow (checked by CEL, and again after the merge)"),
    Rule("trainer.mode", ChangeEffect.NEVER, "modes count the prompts differently; create a new job"),
    Rule("trainer.lora", ChangeEffect.NEVER, "its checkpoints have an adapter of this shape; create a new job"),
    Rule("launcher.type", ChangeEffect.NEVER, "its checkpoints are of no use to another trainer; create a new job"),
    Rule("code.configMap", ChangeEffect.NEVER, "copied when the job began; create a new job"),
    Rule("managedBy", ChangeEffect.NEVER, "CEL refuses the edit; create a new job"),
    Rule("recipeRef", ChangeEffect.NEXT_GENERATION, "and the recipes are then read again"),
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
        """Return when an edit of a running job takes effect."""
        text = path_text(self.path)
        rows = [row for row in MUTABILITY if text == row.field or text.startswith((f"{row.field}.", f"{row.field}["))]
        return max(rows, key=lambda row: len(row.field), default=MUTABILITY[-1]).effect

    def __str__(self) -> str:
        """Return the line that users see: `trainer.learningRate: 1e-6 -> 1e-5`."""
        return f"{path_text(self.path)}: {self.before} -> {self.after}"


def training_document(spec: RLJobSpec) -> dict[str, Any]:
    """Return everything that a running job does not read again."""
    return {name: section for name, section in spec_document(spec).items() if name not in _AT_ONCE}


def training_hash(spec: RLJobSpec) -> str:
    """Return a hash of everything that a running job does not read again."""
    return digest(training_document(spec))


def differences(frozen: RLJobSpec, wanted: RLJobSpec) -> tuple[str, ...]:
    """Return what the next cluster generation would take, one text per field."""
    return tuple(map(str, _compare(training_document(frozen), training_document(wanted))))


def compare(before: RLJobSpec, after: RLJobSpec) -> tuple[Difference, ...]:
    """Return every field in which two specs differ, in the order of the spec."""
    return tuple(_compare(spec_document(before), spec_document(after)))


def _compare(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    old, new = _leaves(before), _leaves(after)
    # In the order of the spec; a removed field keeps its place.
    for path in dict.fromkeys([*new, *old]):
        was = _text(old[path]) if path in old else "unset"
        will = _text(new[path]) if path in new else "unset"
        if old.get(path) != new.get(path) or (path in old) != (path in new):
            yield Difference(path, was, will)


def listed(changes: tuple[str, ...]) -> str:
    """Join differences into a text of bounded length."""
    more = len(changes) - LISTED_MAX
    return "; ".join(changes[:LISTED_MAX]) + (f"; and {more} more" if more > 0 else "")


def change_violations(frozen: RLJobSpec, wanted: RLJobSpec) -> Iterator[Violation]:
    """Yield what CEL cannot see because a recipe may set the field."""
    before, after = frozen.total_steps, wanted.total_steps
    # A command that states no number trains until it ends by itself.
    if before is not None and after is not None and after < before:
        yield Violation(
            "spec.trainer.steps", f"{after} is less than {before}, with which the job began; it may only grow"
        )
    if wanted.launcher.type != frozen.launcher.type:
        yield Violation(
            "spec.launcher.type",
            f"{wanted.launcher.type}, but the job began with {frozen.launcher.type}, whose checkpoints another trainer "
            "cannot resume; create a new job",
        )
    if wanted.trainer.mode != frozen.trainer.mode and wanted.launcher.type == frozen.launcher.type:
        yield Violation(
            "spec.trainer.mode",
            f"{wanted.trainer.mode}, but the job began with {frozen.trainer.mode}, which counts the prompts of its "
            "checkpoints differently; create a new job, which may start from their weights (checkpoint.from)",
        )
    copied, named = frozen.code.config_map, wanted.code.config_map
    if copied is not None and named is not None and named != copied:
        yield Violation(
            "spec.code.configMap",
            f"{named.name}, but {copied.name} was copied when the job began and does not change; create a new job",
        )


def _leaves(document: Mapping[str, Any]) -> dict[Path, Any]:
    return {path: leaf.value for path, leaf in leaves(layer("", document).tree)}


def _text(value: object) -> str:
    text = value if isinstance(value, str) else canonical_json(value)
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"
