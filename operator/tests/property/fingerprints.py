"""What a scenario leaves, as far as it must not depend on faults."""

from __future__ import annotations

import json
import re

from property.world import World

from rljob.cluster.kinds import EVENT, KINDS
from rljob.core.observed import Manifest
from rljob.core.transitions.attempts import LOST

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
UID = r"[0-9a-f]{8}-0000-4000-8000-[0-9a-f]{12}"
VARYING = re.compile(rf"{TIME}|{UID}")
MEASURED = frozenset(
    {"usage", "deviceSeconds", "productiveDeviceSeconds", "cardSeconds", "productiveCardSeconds", "start"}
    | {"recovery", "lastStepTime", "stopTime", "unproductive"}
)
"""Fields that depend on durations, or on which stages of a start were seen."""
WORDS = frozenset({"message", "node"})
LOSSES = re.compile("|".join(sorted(LOST)))


def fingerprint(world: World, *, words: bool = True) -> dict[str, object]:
    """Return what must not depend on faults; without words, also not on what was seen first."""
    kinds = [kind for kind in KINDS.values() if kind != EVENT]
    left = [item for kind in kinds for item in world.cluster.objects(kind) if not _is_courtesy(item)]
    return {
        "objects": sorted((item["kind"], item["metadata"]["name"], _plain(item.get("data"))) for item in left),
        "clusters made": world.invariants.clusters_made,
        "submissions": [submitted.submission_id for submitted in world.ray.submissions],
        "stopped attempts": sorted({stop.attempt for stop in world.ray.stops}),
        "status": _plain((world.job or {}).get("status"), words=words),
    }


def _is_courtesy(item: Manifest) -> bool:
    """Return whether it is a record of attempts, which an absent operator cannot write."""
    return item["kind"] == "ConfigMap" and str(item["metadata"]["name"]).endswith("-attempts")


def _plain(value: object, *, words: bool = True) -> str:
    """Return JSON without times, UIDs and measurements; without words, also without the choice among several losses."""
    dropped = MEASURED if words else MEASURED | WORDS

    def cleaned(part: object) -> object:
        if isinstance(part, dict):
            return {name: cleaned(member) for name, member in part.items() if name not in dropped}
        return [cleaned(member) for member in part] if isinstance(part, list) else part

    text = VARYING.sub("…", json.dumps(cleaned(value), sort_keys=True))
    return text if words else LOSSES.sub("Lost", text)
