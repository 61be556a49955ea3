"""What a job's ConfigMaps tell of it when its status is lost: what it goes by, and how many clusters it had.

Both kinds are made before what they stand for and never deleted by the operator, so nothing that was made is forgotten:
a new cluster generation is later than all before it, and a name is never used twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rljob.build import labels
from rljob.core.observed import Manifest


def recall(job_uid: str, config_maps: Iterable[Manifest]) -> tuple[Manifest | None, int]:
    """Give the latest snapshot and the last cluster generation that may have been made; None and 0 for a new job."""
    found = list(_intents(job_uid, config_maps))
    snapshots = {number: manifest for kind, number, manifest in found if kind == "spec"}
    latest = max(snapshots, default=0)
    # A snapshot without a frozen cluster is that of a generation still to come.
    clusters = (number for kind, number, _ in found if kind == "cluster")
    return snapshots.get(latest), max(*clusters, latest - 1, 0)


def _intents(job_uid: str, config_maps: Iterable[Manifest]) -> Iterator[tuple[str, int, Manifest]]:
    """Read which intent made each; what has none of this job's is passed over."""
    for manifest in config_maps:
        intent = str((manifest["metadata"].get("annotations") or {}).get(labels.INTENT, ""))
        uid, _, rest = intent.partition("/")
        kind, _, number = rest.partition("/")
        if uid == job_uid and number.isdecimal():
            yield kind, int(number), manifest
