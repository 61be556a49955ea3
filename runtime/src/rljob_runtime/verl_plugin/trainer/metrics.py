"""Convert verl's metrics to plain numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rljob_runtime.spool import step_metrics


def validation_metrics(scores: Iterable[float | None]) -> dict[str, float]:
    """Return the mean score over all validation responses. verl's own metrics are per data source."""
    known = [score for score in scores if score is not None]
    return {step_metrics.VALIDATION_SCORE: sum(known) / len(known)} if known else {}


def numbers(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the numeric metrics as floats. verl also logs numpy scalars and occasionally a table."""
    kept = {}
    for key, value in metrics.items():
        try:
            kept[str(key)] = float(value)
        except (TypeError, ValueError):
            continue
    return kept
