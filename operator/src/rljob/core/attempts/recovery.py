"""What a job's ConfigMaps tell of it when its status is lost: what it goes by, its clusters and its ended attempts.

Snapshots and frozen clusters are made before what they stand for and never deleted by the operator, so nothing that was
made is forgotten: a new cluster generation is later than all before it, and a name is never used twice. An attempt is
written down when it ends, so the next one's number is known too.
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
    """What an earlier life left."""

    snapshot: Manifest | None = None
    """The latest."""
    last_generation: int = 0
    """The last cluster generation that may have been made; 0 for a new job."""
    attempts: tuple[Attempt, ...] = ()
    """Those that ended, in their order, as far as they are kept."""
    final: State | None = None
    """How the job had finished, if it had."""


def recall(job_uid: str, config_maps: Iterable[Manifest]) -> Recalled:
    """Read what a job's ConfigMaps tell."""
    found = list(_intents(job_uid, config_maps))
    snapshots = {number: manifest for kind, number, manifest in found if kind == "spec" or _is_both(kind, manifest)}
    latest = max(snapshots, default=0)
    # A snapshot without a frozen cluster is that of a generation still to come.
    clusters = (number for kind, number, _ in found if kind == "cluster")
    kept = [manifest for kind, _, manifest in found if kind == labels.ATTEMPTS]
    attempts = tuple(attempt for manifest in kept for attempt in attempts_of(manifest))
    final = final_of(kept[-1]) if kept else None
    return Recalled(snapshots.get(latest), max(*clusters, latest - 1, 0), attempts, final)


def _is_both(kind: str, manifest: Manifest) -> bool:
    """Whether a frozen cluster is the snapshot of its generation as well."""
    return kind == "cluster" and SPEC_KEY in (manifest.get("data") or {})


def _intents(job_uid: str, config_maps: Iterable[Manifest]) -> Iterator[tuple[str, int, Manifest]]:
    """Read which intent made each; what has none of this job's is passed over."""
    for manifest in config_maps:
        intent = str((manifest["metadata"].get("annotations") or {}).get(labels.INTENT, ""))
        uid, _, rest = intent.partition("/")
        kind, _, number = rest.partition("/")
        if uid == job_uid and (number.isdecimal() or kind == labels.ATTEMPTS):
            yield kind, int(number or 0), manifest
