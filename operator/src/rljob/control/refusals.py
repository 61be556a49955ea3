"""Effects that cannot work, remembered in memory until the job is edited or gone, or they do.

The executor finds them (a name that is somebody else's, a manifest that the server refuses, a quota that is used up),
the core turns them into a condition. A restart forgets them; the next try finds them again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rljob.core.observed import Manifest, Refusal

PER_JOB = 16
"""Refusals kept per job; more would say nothing new."""


class Refusals:
    """By job uid and generation: an edited job gets a new chance."""

    def __init__(self) -> None:
        self._by_uid: dict[str, tuple[int, tuple[Refusal, ...]]] = {}

    def remember(self, job: Manifest, refusal: Refusal) -> None:
        """Keep a refusal for this generation of the job: the first one of each child and cause.

        Each try may be refused with other figures of a quota, and each text would be a status write.
        """
        known = self.of(job)
        if all(_about(refusal) != _about(each) for each in known):
            self._by_uid[_uid(job)] = (_generation(job), (*known, refusal)[-PER_JOB:])

    def forget(self, job: Manifest, kind: str, name: str) -> None:
        """Drop what was said of a child."""
        if known := self.of(job):
            kept = tuple(refusal for refusal in known if (refusal.kind, refusal.name) != (kind, name))
            self._by_uid[_uid(job)] = (_generation(job), kept)

    def of(self, job: Manifest) -> tuple[Refusal, ...]:
        """Give the refusals of this generation of the job."""
        generation, refusals = self._by_uid.get(_uid(job), (0, ()))
        return refusals if generation == _generation(job) else ()

    def keep_only(self, uids: set[str]) -> None:
        """Forget jobs that are gone."""
        self._by_uid = {uid: kept for uid, kept in self._by_uid.items() if uid in uids}


def _about(refusal: Refusal) -> tuple[str, str, str]:
    return refusal.kind, refusal.name, refusal.cause


def _uid(job: Manifest) -> str:
    return str(job["metadata"]["uid"])


def _generation(job: Manifest) -> int:
    return int(job["metadata"].get("generation", 1))
