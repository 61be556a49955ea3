"""What a job's ConfigMaps contain when its status is lost: its snapshot, its clusters and its ended attempts.

Snapshots and frozen clusters are created before the objects that they describe, and those of the last two generations
are kept. A new cluster generation is therefore later than all before it, and no name is used twice. An attempt is
recorded when it ends, so that the number of the next one is known as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from rljob.api.status import Attempt, State
from rljob.core.attempts.evidence import attempts_of, final_of
from rljob.core.observed import Manifest
from rljob.render import labels
from rljob.render.configmap import SPEC_KEY


@dataclass(frozen=True)
class Recalled:
    """What was found of the lost status."""

    snapshot: Manifest | None = None
    """The latest snapshot."""
    last_generation: int = 0
    """The last cluster generation that may have been created; 0 for a new job."""
    attempts: tuple[Attempt, ...] = ()
    """Attempts that ended, in order, as far as they are kept."""
    final: State | None = None
    """How the job finished, if it did."""


def recall(job_uid: str, config_maps: Iterable[Manifest]) -> Recalled:
    """Return what a job's ConfigMaps contain."""
    found = list(_intents(job_uid, config_maps))
    snapshots = {number: manifest for kind, number, manifest in found if kind == "spec" or _is_both(kind, manifest)}
    latest = max(snapshots, default=0)
    # A snapshot without a frozen cluster belongs to a generation that is yet to be created.
    clusters = (number for kind, number, _ in found if kind == "cluster")
    kept = [manifest for kind, _, manifest in found if kind == labels.ATTEMPTS]
    attempts = tuple(attempt for manifest in kept for attempt in attempts_of(manifest))
    final = final_of(kept[-1]) if kept else None
    return Recalled(snapshots.get(latest), max(*clusters, latest - 1, 0), attempts, final)


def generation_frozen_in(job_uid: str, config_map: Manifest) -> int | None:
    """Return the generation whose snapshot or cluster a ConfigMap holds; None if it holds something else."""
    return next((number for kind, number, _ in _intents(job_uid, [config_map]) if kind in ("spec", "cluster")), None)


def _is_both(kind: str, manifest: Manifest) -> bool:
    """Report whether a frozen cluster contains the snapshot of its generation as well."""
    return kind == "cluster" and SPEC_KEY in (manifest.get("data") or {})


def _intents(job_uid: str, config_maps: Iterable[Manifest]) -> Iterator[tuple[str, int, Manifest]]:
    """Return which intent created each; objects without an intent of this job are skipped."""
    for manifest in config_maps:
        intent = str((manifest["metadata"].get("annotations") or {}).get(labels.INTENT, ""))
        uid, _, rest = intent.partition("/")
        kind, _, number = rest.partition("/")
        if uid == job_uid and (number.isdecimal() or kind == labels.ATTEMPTS):
            yield kind, int(number or 0), manifest
