"""A step of `reconcile`: a decision, and the requests that it depends on, declared side by side."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from rljob.core.context import Context
from rljob.core.plan import Plan
from rljob.core.requirements import NOTHING, Requirements
from rljob.core.watched import Watched

Decide = Callable[[Context], Plan | None]
Requires = Callable[[Watched], Requirements]


def no_request(_: Watched) -> Requirements:
    """Require nothing: what watches deliver, or earlier steps require, is enough."""
    return NOTHING


@dataclass(frozen=True)
class Step:
    """One decision; None leaves it to the next step."""

    decide: Decide
    requires: Requires = no_request

    def __call__(self, context: Context) -> Plan | None:
        """Decide."""
        return self.decide(context)


def step(requires: Requires = no_request) -> Callable[[Decide], Step]:
    """Make a step of a function that decides, with the requests that it depends on."""
    return lambda decide: Step(decide, requires)
