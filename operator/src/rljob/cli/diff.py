"""What a manifest would change, and when: against a job of the cluster, or against another file. Pure.

A running job uses the spec that was frozen when its cluster generation began. Fields that it reads again are compared
with those of the live object.
"""

from __future__ import annotations

from rljob.api.v1alpha1 import RLJobSpec
from rljob.cli.status import table
from rljob.core.spec.merge import path_text
from rljob.core.spec.mutability import ChangeEffect, Difference, change_violations, compare


def against_job(frozen: RLJobSpec, live: RLJobSpec, wanted: RLJobSpec) -> str:
    """Return a row for each field that applying `wanted` would change in a running job; empty if there is none."""
    later = [each for each in compare(frozen, wanted) if each.effect is not ChangeEffect.AT_ONCE]
    at_once = [each for each in compare(live, wanted) if each.effect is ChangeEffect.AT_ONCE]
    rows = [(*_row(each), each.effect.value) for each in [*at_once, *later]]
    page = table([("FIELD", "FROM", "TO", "TAKES EFFECT"), *rows]) if rows else ""
    return "\n".join([page, *(f"refused: {each}" for each in change_violations(frozen, wanted))]).strip()


def against_file(before: RLJobSpec, after: RLJobSpec) -> str:
    """Return a row for each field in which two manifests differ; empty if there is none."""
    rows = [_row(each) for each in compare(before, after)]
    return table([("FIELD", "FROM", "TO"), *rows]) if rows else ""


def _row(each: Difference) -> tuple[str, str, str]:
    return path_text(each.path), each.before, each.after
