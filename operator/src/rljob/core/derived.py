"""What follows from a job's spec, snapshots and recipes alone, kept between the rounds in which these are the same.

Most rounds of a running job change its progress only. `control.job_memory` keeps one `Derived` per job as long as
`inputs_of` returns the same value: every field of `Derived` must follow from what `inputs_of` lists.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from rljob.api.limits import OVER_BUDGET
from rljob.core.observed import Manifest, Observed, Unseen
from rljob.core.validation.validate import Checked
from rljob.render.configmap import Snapshot
from rljob.render.labels import REFRESH

T = TypeVar("T")


@dataclass
class Once(Generic[T]):
    """A value that is computed when it is first asked for."""

    _found: tuple[T] | None = None

    def get(self, compute: Callable[[], T]) -> T:
        """Return the value."""
        if self._found is None:
            self._found = (compute(),)
        return self._found[0]

    def computing(self, compute: Callable[[], Generator[None, None, T]]) -> Generator[None, None, T]:
        """Return the value, which is computed in parts."""
        if self._found is None:
            self._found = ((yield from compute()),)
        return self._found[0]


@dataclass
class Derived:
    """Values that are expensive to compute."""

    checked: Once[Checked] = field(default_factory=Once)
    """The spec that the next cluster generation would take."""
    frozen: Once[Snapshot | None] = field(default_factory=Once)
    """The snapshot that the job uses."""
    differences: Once[tuple[str, ...]] = field(default_factory=Once)
    """What the next cluster generation would change, field by field."""


def inputs_of(observed: Observed) -> Hashable:
    """Return a value that changes whenever an input of `Derived` does."""
    metadata = observed.job["metadata"]
    return (
        metadata.get("generation"),
        _is_kept(observed.job),
        (metadata.get("annotations") or {}).get(REFRESH),
        _version(observed.snapshot),
        _version(observed.base_snapshot),
        tuple(sorted((recipe, _version(found), _is_kept(found)) for recipe, found in observed.recipes.items())),
    )


def _is_kept(found: Manifest) -> bool:
    """Report whether the operator has the spec of an object: without memory for it, it has not."""
    return OVER_BUDGET not in (found.get("spec") or ())


def _version(found: Manifest | Unseen | None) -> str:
    """Return a text that differs for different contents: a uid and its resourceVersion."""
    if found is None or isinstance(found, Unseen):
        return str(found)
    return f"{found['metadata'].get('uid')}/{found['metadata'].get('resourceVersion')}"
