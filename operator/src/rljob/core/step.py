"""A step of `reconcile`: whether it applies, the requests that it depends on, and its decision, declared side by side.

`when` is the one statement of a guard: a step that does not apply requires nothing and leaves the decision to the next.
It reads what watches deliver, so that it gives the same answer before the requests and after them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from rljob.core.context import Context
from rljob.core.plan import Plan
from rljob.core.requirements import NOTHING, Requirements
from rljob.core.watched import Watched

T = TypeVar("T")
Decide = Callable[[Context], Plan | None]
Requires = Callable[[Watched], Requirements]
Applies = Callable[[Watched], bool]


def _always(_: Watched) -> bool:
    return True


@dataclass(frozen=True)
class Step:
    """One decision; None leaves it to the next step."""

    decide: Decide
    applies: Applies
    requests: Requires | Requirements

    def requires(self, seen: Watched) -> Requirements:
        """Return the requests to make before the decision; none if the step does not apply."""
        if not self.applies(seen):
            return NOTHING
        return self.requests if isinstance(self.requests, Requirements) else self.requests(seen)

    def __call__(self, context: Context) -> Plan | None:
        """Decide, if the step applies."""
        return self.decide(context) if self.applies(context) else None


def step(requires: Requires | Requirements = NOTHING, *, when: Applies = _always) -> Callable[[Decide], Step]:
    """Make a step of a function that decides, with what it requires and when it applies."""
    return lambda decide: Step(decide, when, requires)


def guarded(value: T | None) -> T:
    """Return a value that exists whenever the step applies."""
    if value is None:
        raise AssertionError("the guard of a step lets none pass")
    return value
