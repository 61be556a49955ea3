"""What a manifest would change, and when: against a job of the cluster, or against another file. Pure.

A running job uses the spec that was frozen when its cluster generation began. Fields that it reads again are compared
with those of the live object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.status import table
from rljob.cli.verbs.apply import READ_AFTER_THE_END
from rljob.core.spec.merge import path_text
from rljob.core.spec.mutability import ChangeEffect, Difference, change_violations, compare
from rljob.core.validation.violation import Violation

NEVER = ChangeEffect.NEVER.value
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""Annotation in which client-side `kubectl apply` keeps the manifest that it applied last."""


@dataclass(frozen=True)
class Changes:
    """What changes in one job."""

    differences: tuple[Difference, ...]
    refused: tuple[Violation, ...] = ()
    """Why the operator would refuse them."""
    is_live: bool = False
    """Whether the job exists, so that the time at which a change takes effect matters."""
    ended: str = ""
    """State in which the job has ended, so that nothing takes effect."""

    def __bool__(self) -> bool:
        """Return whether anything changes."""
        return bool(self.differences or self.refused)

    @property
    def page(self) -> str:
        """A row for each field; empty if there is none."""
        head = ("FIELD", "FROM", "TO", *(["TAKES EFFECT"] if self.is_live else []))
        rows = [(*_row(each), *([self._effect(each)] if self.is_live else [])) for each in self.differences]
        page = table([head, *rows]) if rows else ""
        over = [f"the job has ended as {self.ended}: delete it and create it again, or use another name"]
        lost = any(self._effect(each) == NEVER for each in self.differences) and self.ended
        return "\n".join([page, *(over if lost else ()), *(f"refused: {each}" for each in self.refused)]).strip()

    def _effect(self, each: Difference) -> str:
        return each.effect.value if not self.ended or each.path[0] in READ_AFTER_THE_END else NEVER

    def document(self, namespace: str, name: str) -> dict[str, Any]:
        """Return the same as data."""
        keys = ("field", "from", "to")
        effects = [{"takesEffect": self._effect(each)} if self.is_live else {} for each in self.differences]
        changes = [
            dict(zip(keys, _row(each), strict=True)) | effect
            for each, effect in zip(self.differences, effects, strict=True)
        ]
        return {"namespace": namespace, "job": name, "changes": changes, "refused": list(map(str, self.refused))}


def against_job(frozen: RLJobSpec, live: RLJobSpec, wanted: RLJobSpec, *, ended: str = "") -> Changes:
    """Return what applying `wanted` would change in a job; `ended` is the state in which it has ended."""
    later = [each for each in compare(frozen, wanted) if each.effect is not ChangeEffect.AT_ONCE]
    at_once = [each for each in compare(live, wanted) if each.effect is ChangeEffect.AT_ONCE]
    return Changes((*at_once, *later), tuple(change_violations(frozen, wanted)), is_live=True, ended=ended)


def applied_spec(live: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec that a job has after `kubectl apply`.

    Fields that the manifest leaves out keep their values, as `suspend` after `rljob suspend`, unless the manifest that
    was applied last had them. kubectl does the same for custom resources: apimachinery v0.35.4,
    pkg/util/jsonmergepatch/patch.go, CreateThreeWayJSONMergePatch.
    """
    try:
        last = json.loads((live["metadata"].get("annotations") or {}).get(LAST_APPLIED) or "{}")
    except ValueError:
        last = {}
    before = last.get("spec") if isinstance(last, dict) else None
    return _applied(before, spec, live.get("spec") or {})


def _applied(before: object, wanted: Mapping[str, Any], live: object) -> dict[str, Any]:
    earlier = before if isinstance(before, Mapping) else {}
    merged = dict(live) if isinstance(live, Mapping) else {}
    for key in earlier.keys() - wanted.keys():
        merged.pop(key, None)
    for key, value in wanted.items():
        if isinstance(value, Mapping):
            merged[key] = _applied(earlier.get(key), value, merged.get(key))
        elif value is None:
            merged.pop(key, None)
        else:
            merged[key] = value
    return merged


def against_file(before: RLJobSpec, after: RLJobSpec) -> Changes:
    """Return the fields in which two manifests differ."""
    return Changes(compare(before, after))


def _row(each: Difference) -> tuple[str, str, str]:
    return path_text(each.path), each.before, each.after
