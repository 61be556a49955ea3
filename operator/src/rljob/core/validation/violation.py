"""What is wrong with a manifest: the field and a sentence that says what was seen and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong."""

    field: str
    message: str

    def __str__(self) -> str:
        """Give the line that users see."""
        return f"{self.field}: {self.message}"


Check = Callable[[RLJobSpec], Iterator[Violation]]
"""Judges a spec whose types hold; sees neither the cluster nor the other checks, and never fails."""
