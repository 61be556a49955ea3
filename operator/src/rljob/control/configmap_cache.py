"""The ConfigMaps of jobs that begin, as far as this process listed or made them: the next rounds need not ask for them.

They are immutable and their names are this job's, so what was listed or made stays true, and so does that one is
absent until we make it. Where somebody else made it meanwhile, the creation finds out (`execute._adopt`). The observer
fills this from the LIST that a job without status costs anyway, the executor adds what it makes, and a job is dropped
when its cluster is there; after a restart nothing is known, and the API server is asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rljob.core.observed import UNSEEN

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rljob.core.observed import Manifest, Unseen


class OwnConfigMaps:
    """By uid of the job, and by name."""

    def __init__(self) -> None:
        self._by_uid: dict[str, dict[str, Manifest]] = {}

    def listed(self, uid: str, found: Iterable[Manifest]) -> None:
        """Take all that a job has."""
        self._by_uid[uid] = {item["metadata"]["name"]: item for item in found}

    def made(self, uid: str, manifest: Manifest) -> None:
        """Take one more; of a job that was never listed nothing is known."""
        if uid in self._by_uid:
            self._by_uid[uid][manifest["metadata"]["name"]] = manifest

    def find(self, uid: str, name: str) -> Manifest | Unseen | None:
        """Give a ConfigMap, None if it is absent, UNSEEN if nothing is known."""
        known = self._by_uid.get(uid)
        return UNSEEN if known is None else known.get(name)

    def drop(self, uid: str) -> None:
        """Forget a job: what it needs next is asked for."""
        self._by_uid.pop(uid, None)

    def keep_only(self, uids: set[str]) -> None:
        """Forget jobs that are gone."""
        for uid in self._by_uid.keys() - uids:
            del self._by_uid[uid]
