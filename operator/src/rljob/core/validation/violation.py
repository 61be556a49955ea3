"""A violation: the field, and a sentence that states what was found and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rljob.api.printing import encodable, printable
from rljob.api.v1alpha1 import RLJobSpec


@dataclass(frozen=True)
class Violation:
    """One error in a manifest."""

    field: str
    message: str

    def __post_init__(self) -> None:
        """Make both parts encodable and printable, because they quote what a manifest says."""
        object.__setattr__(self, "field", printable(encodable(self.field)))
        object.__setattr__(self, "message", printable(encodable(self.message)))

    def __str__(self) -> str:
        """Return the line that users see."""
        return f"{self.field}: {self.message}"


Check = Callable[[RLJobSpec], Iterator[Violation]]
"""Checks a spec whose types hold; it sees neither the cluster nor other checks, and never fails."""
