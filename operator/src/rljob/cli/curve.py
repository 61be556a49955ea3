"""Plot a curve in the terminal, one column per point, without characters that fonts may lack. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

HEIGHT = 12
MAX_WIDTH = 80


def plot(values: Sequence[float], *, title: str, height: int = HEIGHT, width: int = MAX_WIDTH) -> str:
    """Draw the values over their index, from 0 to the next tenth above the maximum.

    More values than columns are averaged.
    """
    columns = _columns(values, width)
    finite = [value for value in columns if math.isfinite(value)]
    if not finite:
        return f"{title}: no data"
    low = min(0.0, *finite)
    high = max(math.ceil(max(finite) * 10) / 10, low + 0.1)
    rows = []
    for row in range(height, -1, -1):
        level = low + (high - low) * row / height
        label = f"{level:6.2f} |" if row % 3 == 0 else "       |"
        marks = "".join("*" if _row(value, low, high, height) == row else " " for value in columns)
        rows.append((label + marks).rstrip())
    axis = "       +" + "-" * len(columns)
    first, last = "1", str(len(values))
    scale = "        " + first + last.rjust(max(len(columns) - len(first), len(last) + 1))
    return "\n".join([f"        {title}", *rows, axis, scale])


def _columns(values: Sequence[float], width: int) -> list[float]:
    size = -(-len(values) // width) if values else 1
    groups = [values[start : start + size] for start in range(0, len(values), size)]
    return [_mean([value for value in group if math.isfinite(value)]) for group in groups]


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values) if values else math.nan


def _row(value: float, low: float, high: float, height: int) -> int | None:
    return round((value - low) / (high - low) * height) if math.isfinite(value) else None
