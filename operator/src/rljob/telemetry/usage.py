"""Device time of all jobs by namespace and queue: counters of running jobs, and the devices held now.

The source is each job's status, which outlives this process. A Prometheus counter starts at 0 with every process and is
read by its increase. Therefore usage from before this process saw the job is not counted again, and from then on each
counter rises with the job. Counters never decrease when an estimate of a running attempt does. `telemetry.ledger` calls
this module.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Self

from rljob.api.status import RLJobStatus
from rljob.core.attempts.usage import Account, account
from rljob.telemetry.metrics import Metrics, Place


@dataclass
class Used:
    """Usage of one job."""

    account: Account
    device_seconds: float
    """As counted."""
    productive_seconds: float

    @classmethod
    def first_seen(cls, current: RLJobStatus, now: datetime) -> Self:
        """Start with a job's current usage, which this process does not count."""
        found = account(current)
        return cls(found, found.device_seconds_at(now), found.productive_device_seconds)

    def read(self, current: RLJobStatus) -> None:
        """Read a new status."""
        self.account = account(current)

    def count(self, metrics: Metrics, place: Place, now: datetime) -> None:
        """Count the usage since the last call."""
        found = self.account
        held = max(found.device_seconds_at(now), self.device_seconds)
        productive = max(found.productive_device_seconds, self.productive_seconds)
        more, better = held - self.device_seconds, productive - self.productive_seconds
        self.device_seconds, self.productive_seconds = held, productive
        metrics.device_seconds.labels(*place).inc(more)
        metrics.productive_device_seconds.labels(*place).inc(better)
        metrics.card_seconds.labels(*place).inc(more * found.cards_per_device)
        metrics.productive_card_seconds.labels(*place).inc(better * found.cards_per_device)


def tell_usage(metrics: Metrics, jobs: Iterable[tuple[Place, Used]], now: datetime) -> None:
    """Set the gauges of devices held and of goodput for the existing jobs."""
    devices: dict[Place, int] = defaultdict(int)
    held: dict[Place, float] = defaultdict(float)
    productive: dict[Place, float] = defaultdict(float)
    for place, used in jobs:
        devices[place] += used.account.devices
        held[place] += used.account.device_seconds_at(now)
        productive[place] += used.account.productive_device_seconds
    metrics.devices_held.clear()
    metrics.goodput.clear()
    for place, seconds in held.items():
        metrics.devices_held.labels(*place).set(devices[place])
        if seconds > 0:
            metrics.goodput.labels(*place).set(productive[place] / seconds)
