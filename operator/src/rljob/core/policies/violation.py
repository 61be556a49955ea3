"""What is wrong with a manifest: the field and a sentence that says what was seen and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Violation:
    """One thing that is wrong."""

    field: str
    message: str

    def __str__(self) -> str:
        """Give the line that users see."""
        return f"{self.field}: {self.message}"
