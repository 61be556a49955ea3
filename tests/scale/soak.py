"""`make soak`: one operator process handles wave after wave of jobs, and its memory is recorded.

Each wave is created at once. Two of three jobs train to their end; the third loses its driver's node once and continues
in another cluster. When all have succeeded, they are deleted, and the operator's memory is read when nothing of them is
left: growth from wave to wave is memory that it failed to release.
"""

from __future__ import annotations

import asyncio
import os
import signal
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass

from rljob.api.v1alpha1 import API_VERSION
from rljob.cluster.token import TokenKey
from rljob_runtime.contract import ExitCode
from tests.scale import objects
from tests.scale.client import Manifest
from tests.scale.figures import usage
from tests.scale.heads import Heads
from tests.scale.plane import OPERATOR
from tests.scale.plays import Failure, Play
from tests.scale.run import Side, background, opened
from tests.scale.settings import Settings

MINUTES = "SOAK_MINUTES"
JOBS = 60
"""Jobs per wave."""
WAVES_MIN, WAVES_MAX = 6, 500
STEPS, SAVE_EVERY, STEP_SECONDS = 6, 2, 2.0
LOOK_SECONDS = 1.0
LEFT = (objects.RLJOBS, objects.RAYCLUSTERS, f"/api/v1/namespaces/{objects.NAMESPACE}/pods")


@dataclass(frozen=True)
class Reading:
    """Measurement after one wave."""

    minutes: float
    jobs: int
    """Number since the operator started."""
    rss_mib: float


def name_of(wave: int, number: int) -> str:
    """Return the name of a job."""
    return f"wave-{wave:03d}-{number:02d}"


def plays() -> dict[str, Play]:
    """Return the course of the runs of all waves."""
    well = Play(STEPS, STEP_SECONDS)
    lost = Play(STEPS, STEP_SECONDS, Failure(ExitCode.ENVIRONMENT, at_step=3))
    return {name_of(wave, n): well if n % 3 else lost for wave in range(WAVES_MAX) for n in range(JOBS)}


def jobs_of(wave: int) -> Iterator[Manifest]:
    """Yield the jobs of one wave."""
    spec = objects.spec(workers=1)
    spec |= {
        "trainer": spec["trainer"] | {"steps": STEPS},
        "checkpoint": spec["checkpoint"] | {"everySteps": SAVE_EVERY},
        "restart": {"backoffSeconds": 1},
    }
    for number in range(JOBS):
        metadata = {"name": name_of(wave, number), "namespace": objects.NAMESPACE}
        yield {"apiVersion": API_VERSION, "kind": "RLJob", "metadata": metadata, "spec": spec}


async def live_through(side: Side, wave: int) -> None:
    """Create a wave, wait for its end, delete it, and wait until nothing of it is left."""
    deadline = time.monotonic() + side.settings.patience_seconds
    await side.client.create_all(objects.RLJOBS, jobs_of(wave))
    while (states := await _states(side)) != {"Succeeded"}:
        assert "Failed" not in states, "a job failed"
        assert time.monotonic() < deadline, f"wave {wave} does not end: {states}"
        await asyncio.sleep(LOOK_SECONDS)
    await side.client.ask("DELETE", objects.RLJOBS)
    while any([(await side.client.list(path))[0] for path in LEFT]):
        assert time.monotonic() < deadline, f"wave {wave} does not go"
        await asyncio.sleep(LOOK_SECONDS)


async def _states(side: Side) -> set[str]:
    jobs, _ = await side.client.list(objects.RLJOBS)
    return {(job.get("status") or {}).get("state", "") for job in jobs}


async def soak(minutes: float) -> list[Reading]:
    """Run waves until the time is over."""
    readings: list[Reading] = []
    async with opened(Settings(jobs=JOBS, workers=1, patience_seconds=900)) as side:
        heads = Heads(TokenKey.from_file(side.plane.token_key), STEP_SECONDS, plays())
        async with background(heads.serve(side.client, objects.NAMESPACE)):
            await side.plane.start_operator()
            pid, began = side.plane.pid(OPERATOR), time.monotonic()
            print(f"before the first wave: {usage(pid).rss_mib:.1f} MiB", flush=True)
            for wave in range(WAVES_MAX):
                await live_through(side, wave)
                passed = (time.monotonic() - began) / 60
                readings.append(Reading(passed, (wave + 1) * JOBS, usage(pid).rss_mib))
                print(f"{passed:6.1f} min {(wave + 1) * JOBS:6d} jobs {readings[-1].rss_mib:7.1f} MiB", flush=True)
                if passed >= minutes and len(readings) >= WAVES_MIN:
                    break
            assert side.plane.pid(OPERATOR) == pid
            assert heads.refused == 0, heads.refusals
    return readings


def growth(readings: list[Reading]) -> float:
    """Return the MiB per thousand jobs, from the later half of the waves: the first ones fill bounded caches."""
    later = readings[len(readings) // 2 :]
    return 1000 * statistics.linear_regression([r.jobs for r in later], [r.rss_mib for r in later]).slope


def main() -> None:
    """Run and print the result."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    readings = asyncio.run(soak(float(os.environ.get(MINUTES) or 30)))
    print(f"{growth(readings):+.2f} MiB a thousand jobs, by the later half of {len(readings)} waves")


if __name__ == "__main__":
    main()
