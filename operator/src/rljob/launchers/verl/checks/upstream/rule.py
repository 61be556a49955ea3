"""A condition of upstream code as a rule about settings, and a table of such rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rljob.core.validation.violation import Violation
from rljob.launchers.verl.checks.upstream.settings import Settings


@dataclass(frozen=True)
class Rule:
    """Settings on which a pinned upstream release fails."""

    name: str
    """The verdicts of upstream/conditions name it."""
    source: str
    """File and line of the condition, in the release that the module names."""
    key: str
    """The setting to which the message belongs."""
    fails: Callable[[Settings], bool]
    message: str
    """What is wrong and the fix; `{value}` stands for the value of the key."""


@dataclass(frozen=True)
class Table:
    """Rules of one upstream package, and where they apply."""

    rules: tuple[Rule, ...]
    applies: Callable[[Settings], bool] = lambda _: True

    def judge(self, settings: Settings) -> Iterator[Violation]:
        """Report every rule that fails."""
        if self.applies(settings):
            for rule in self.rules:
                if rule.fails(settings):
                    message = rule.message.replace("{value}", settings.shown(rule.key))
                    yield Violation(settings.field(rule.key), message)
