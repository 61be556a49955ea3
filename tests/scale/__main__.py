"""`make scale`: our side, then KubeRay's RayJobs, then the table; `SCALE_SIDES=rljobs` runs one side only."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable

from tests.scale.report import keep, table
from tests.scale.run import Outcome, run_rayjobs, run_rljobs
from tests.scale.settings import Settings, read_settings

SIDES: dict[str, tuple[str, Callable[[Settings, Callable[[str], None]], Awaitable[Outcome]]]] = {
    "rljobs": ("RLJob", run_rljobs),
    "rayjobs": ("RayJob", run_rayjobs),
}


async def run(settings: Settings, sides: list[str]) -> list[tuple[str, Outcome]]:
    """Run the sides one after the other."""
    outcomes: list[tuple[str, Outcome]] = []
    for side in sides:
        name, start = SIDES[side]
        began = time.monotonic()

        def say(text: str, name: str = name, began: float = began) -> None:
            print(f"{time.monotonic() - began:7.1f} s  {name}: {text}", flush=True)

        say(f"{settings.jobs} jobs of {1 + settings.workers} pods")
        outcomes.append((name, await start(settings, say)))
        # Print now: the run may be interrupted before the other side ends.
        print(table(outcomes), flush=True)
    return outcomes


def main() -> None:
    """Run the sides, print their table and write the report to build/scale."""
    settings = read_settings()
    sides = os.environ.get("SCALE_SIDES", "").replace(",", " ").split() or list(SIDES)
    if unknown := set(sides) - set(SIDES):
        raise SystemExit(f"SCALE_SIDES names {', '.join(sorted(unknown))}; there are {', '.join(SIDES)}")
    # On SIGTERM, exit normally so that child processes and the scratch folder are cleaned up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    outcomes = asyncio.run(run(settings, sides))
    print(f"report: {keep(settings, outcomes)}")


if __name__ == "__main__":
    main()
