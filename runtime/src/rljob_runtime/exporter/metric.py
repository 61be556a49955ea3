"""The type that describes one served metric."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """One metric."""

    name: str
    kind: str
    description: str
    source: str
    labels: tuple[str, ...] = ()
    unit: str = ""
    """seconds, tokens, bytes, ratio (0 to 1), timestamp (Unix time) ...; empty for a plain number."""
