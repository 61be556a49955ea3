"""What a manifest would change, and when: against a job of the cluster, or against another file. Pure.

A running job uses the spec that was frozen when its cluster generation began. Fields that it reads again are compared
with those of the live object.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.status import table
from rljob.core.spec.merge import path_text
from rljob.core.spec.mutability import ChangeEffect, Difference, change_violations, compare
from rljob.core.validation.violation import Violation


@dataclass(frozen=True)
class Changes:
    """What changes in one job."""

    differences: tuple[Difference, ...]
    refused: tuple[Violation, ...] = ()
    """Why the operator would refuse them."""
    is_live: bool = False
    """Whether the job exists, so that the time at which a change takes effect matters."""

    def __bool__(self) -> bool:
        """Return whether anything changes."""
        return bool(self.differences or self.refused)

    @property
    def page(self) -> str:
        """A row for each field; empty if there is none."""
        head = ("FIELD", "FROM", "TO", *(["TAKES EFFECT"] if self.is_live else []))
        rows = [(*_row(each), *([each.effect.value] if self.is_live else [])) for each in self.differences]
        page = table([head, *rows]) if rows else ""
        return "\n".join([page, *(f"refused: {each}" for each in self.refused)]).strip()

    def document(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the same as data."""
        keys = ("field", "from", "to")
        effects = [{"takesEffect": each.effect.value} if self.is_live else {} for each in self.differences]
        changes = [
            dict(zip(keys, _row(each), strict=True)) | effect
            for each, effect in zip(self.differences, effects, strict=True)
        ]
        return {"namespace": namespace, "job": name, "changes": changes, "refused": list(map(str, self.refused))}


def against_job(frozen: RLJobSpec, live: RLJobSpec, wanted: RLJobSpec) -> Changes:
    """Return what applying `wanted` would change in a running job."""
    later = [each for each in compare(frozen, wanted) if each.effect is not ChangeEffect.AT_ONCE]
    at_once = [each for each in compare(live, wanted) if each.effect is ChangeEffect.AT_ONCE]
    return Changes((*at_once, *later), tuple(change_violations(frozen, wanted)), is_live=True)


def against_file(before: RLJobSpec, after: RLJobSpec) -> Changes:
    """Return the fields in which two manifests differ."""
    return Changes(compare(before, after))


def _row(each: Difference) -> tuple[str, str, str]:
    return path_text(each.path), each.before, each.after
