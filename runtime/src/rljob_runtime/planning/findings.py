"""A finding about a run: the field of the manifest, and a sentence that states what was found and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Finding:
    """One error or doubt."""

    field: str
    """Path in the manifest, without `spec.`."""
    message: str
    fact: str
    """Name of the model's fact behind it."""
    refused: bool
    """False for a warning."""
