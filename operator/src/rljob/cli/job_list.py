"""The table of `rljob list`. Pure: takes manifests and returns text."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rljob.cli.status import ABSENT, table

if TYPE_CHECKING:
    from rljob.core.observed import Manifest

HEADS = ("NAME", "STATE", "STEP", "REWARD", "TPS/CARD", "RESTARTS", "AGE")
WIDE = ("CLASS", "CARDS", "QUEUE", "CLUSTER", "MESSAGE")
MESSAGE_CHARACTERS = 160


def list_page(jobs: Sequence[Manifest], now: datetime, *, wide: bool, everywhere: bool) -> str:
    """Return the table, by namespace and name."""
    if not jobs:
        return "no RLJobs"
    ordered = sorted(jobs, key=lambda job: (job["metadata"].get("namespace", ""), job["metadata"]["name"]))
    first = ("NAMESPACE",) if everywhere else ()
    rows = [
        (*((str(job["metadata"].get("namespace", ABSENT)),) if everywhere else ()), *_row(job, now, wide=wide))
        for job in ordered
    ]
    return table([(*first, *HEADS, *(WIDE if wide else ())), *rows])


def _row(job: Manifest, now: datetime, *, wide: bool) -> tuple[str, ...]:
    status, spec = job.get("status") or {}, job.get("spec") or {}
    progress = status.get("progress") or {}
    step = f"{progress.get('step', 0)}/{progress.get('totalSteps', '?')}" if progress else ABSENT
    cells = (
        str(job["metadata"]["name"]),
        str(status.get("state") or "Unknown"),
        step,
        str(progress.get("reward", ABSENT)),
        str(progress.get("tokensPerSecondPerCard", ABSENT)),
        str(status.get("restarts", 0)),
        age(job["metadata"].get("creationTimestamp"), now),
    )
    if not wide:
        return cells
    return (
        *cells,
        str((spec.get("accelerator") or {}).get("class") or ABSENT),
        str((status.get("resolved") or {}).get("cards") or ABSENT),
        str((spec.get("scheduling") or {}).get("queueName") or ABSENT),
        str((status.get("rayCluster") or {}).get("name") or ABSENT),
        str(status.get("message") or ABSENT)[:MESSAGE_CHARACTERS],
    )


def age(created: object, now: datetime) -> str:
    """Return an age in its largest unit, as kubectl shows it."""
    if not created:
        return ABSENT
    passed = max(0, int((now - datetime.fromisoformat(str(created))).total_seconds()))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if passed >= 2 * length:
            return f"{passed // length}{unit}"
    return f"{passed}s"
