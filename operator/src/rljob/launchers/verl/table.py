"""All rows from fields of the spec to keys of verl."""

from __future__ import annotations

from collections.abc import Mapping

from rljob.api.v1alpha1 import RLJobSpec
from rljob.launchers.verl import agent, asynchronous, critic, judge, lifecycle, lora, rollout, training
from rljob.launchers.verl.rows import OverrideRow

TABLE: tuple[OverrideRow, ...] = (
    *training.ROWS,
    *lora.ROWS,
    *asynchronous.ROWS,
    *critic.ROWS,
    *rollout.ROWS,
    *agent.ROWS,
    *judge.ROWS,
    *lifecycle.ROWS,
)
TYPED_KEYS = {row.key.lstrip("+"): row.field for row in TABLE if row.own}
"""Keys that a field sets, in one kind of job or in all."""


def typed_keys(spec: RLJobSpec) -> Mapping[str, str]:
    """Return the keys that `verl.overrides` of a job may not set, because a field does."""
    free = {row.key.lstrip("+") for row in TABLE if row.free_elsewhere and not row.when.holds(spec)}
    return {key: field for key, field in TYPED_KEYS.items() if key not in free}
