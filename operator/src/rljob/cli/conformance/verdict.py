"""What a claim turned out to be. Pure."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Result(enum.StrEnum):
    """Results of a claim."""

    CONFIRMED = "confirmed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    """The claim is about something that this class or cluster does not have."""
    NOT_RUN = "not run"
    """Nothing is known: an earlier claim failed, the run was interrupted, or the caller may not read the objects."""


@dataclass(frozen=True)
class Verdict:
    """Result of a claim with what was seen and, if it failed, what to do."""

    result: Result
    seen: str
    fix: str = ""

    @property
    def text(self) -> str:
        """Return what was seen with the fix."""
        return f"{self.seen}; {self.fix}" if self.fix else self.seen


def confirmed(seen: str) -> Verdict:
    """Return the verdict of a claim that holds."""
    return Verdict(Result.CONFIRMED, seen)


def failed(seen: str, fix: str = "") -> Verdict:
    """Return the verdict of a claim that does not hold."""
    return Verdict(Result.FAILED, seen, fix)


def not_applicable(reason: str) -> Verdict:
    """Return the verdict of a claim without a subject."""
    return Verdict(Result.NOT_APPLICABLE, reason)


def not_run(reason: str) -> Verdict:
    """Return the verdict of a claim about which nothing is known."""
    return Verdict(Result.NOT_RUN, reason)
