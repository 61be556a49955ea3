"""One recipe of a job's chain, as the job's snapshot keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rljob.api.v1alpha1 import RecipeKind


@dataclass(frozen=True)
class RecipeOrigin:
    """Which version of which recipe was read."""

    kind: RecipeKind
    name: str
    uid: str
    generation: int

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True)
class RecipeLayer:
    """The part of a recipe that is merged below the job's spec."""

    origin: RecipeOrigin
    template: Mapping[str, Any]
    unset: tuple[str, ...]
    locked: tuple[str, ...] = ()
