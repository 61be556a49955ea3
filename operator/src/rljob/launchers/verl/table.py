"""All rows from fields of the spec to keys of verl."""

from __future__ import annotations

from rljob.launchers.verl import critic, lifecycle, rollout, training
from rljob.launchers.verl.rows import OverrideRow

TABLE: tuple[OverrideRow, ...] = (*training.ROWS, *critic.ROWS, *rollout.ROWS, *lifecycle.ROWS)
TYPED_KEYS = {row.key.lstrip("+"): row.field for row in TABLE if row.own}
"""Keys that `verl.overrides` may not set, because a field does."""
