"""Values of overrides that are not in the set that verl or vLLM chooses from (launchers/verl/closed_sets.py)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.closed_sets import SETS, ClosedSet
from rljob.launchers.verl.effective import Setting, effective

EXTERNAL = "VERL_USE_EXTERNAL_MODULES"
"""Variable of the pods that names modules which verl imports first, and which may register more (verl/__init__.py)."""


def _values_are_known(spec: RLJobSpec) -> Iterator[Violation]:
    seen = effective(spec)
    own = any(variable.name == EXTERNAL for group in spec.worker_groups for variable in group.template.env)
    for row in SETS:
        if row.extended_by is not None and (own or seen.value(row.extended_by) is not None):
            continue
        for key in row.keys:
            setting = seen.setting(key)
            if setting is not None and setting.by_override and setting.value is not None:
                yield from _problem(setting, row)


def _problem(setting: Setting, row: ClosedSet) -> Iterator[Violation]:
    value = str(setting.value)
    if value in row.values:
        return
    near = row.successors.get(value) or next(iter(difflib.get_close_matches(value, row.values, n=1)), None)
    hint = f"use {near}" if near else "use one of them"
    yield Violation(setting.field, f"{value} is none of {', '.join(row.values)}; {hint}")


CHECKS: tuple[Check, ...] = (_values_are_known,)
