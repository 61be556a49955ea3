"""Since when heads are asked in vain, for `control.observe`: a restart of the operator begins to count anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rljob.core.observed import RayJob, Silence, Unseen
from rljob_runtime.contract import Progress

if TYPE_CHECKING:
    from datetime import datetime

    from rljob.core.requirements import Requirements


@dataclass(frozen=True)
class Silences:
    """The silences that last."""

    by_uid: dict[str, Silence] = field(default_factory=dict)
    """By uid of the job."""

    def take(
        self,
        uid: str,
        now: datetime,
        asked: Requirements,
        progress: Progress | Unseen,
        ray_job: RayJob | Unseen | None,
    ) -> Silence | None:
        """Remember one more look at a head; None where its exporter answers, or was not asked."""
        known = self.by_uid.pop(uid, None)
        if not asked.progress or not isinstance(progress, Unseen):
            return None
        mute = (known.mute_since if known else None) or now
        self.by_uid[uid] = Silence(known.since if known else now, mute if isinstance(ray_job, Unseen) else None)
        return self.by_uid[uid]
