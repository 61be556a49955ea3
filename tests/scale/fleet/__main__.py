"""`make fleet`: run the fleet, judge it, and write the report with its plots (FLEET_JOBS, FLEET_SEED)."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from tests.scale.fleet.judge import OVERLAP_SECONDS, PART_SECONDS, judge, leftovers
from tests.scale.fleet.mix import Fleet
from tests.scale.fleet.report import keep
from tests.scale.fleet.run import run_fleet

JOBS, SEED = 200, 1
PATIENCE_SECONDS = 3600.0
FOUND_SHOWN = 20


def main() -> None:
    """Run and judge the fleet and write the report to build/fleet; exit with 1 when a bound was violated."""
    fleet = Fleet(_number("FLEET_JOBS", JOBS), _number("FLEET_SEED", SEED))
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"{time.monotonic() - began:7.1f} s  {text}", flush=True)

    # On SIGTERM, exit normally so that child processes and the scratch folder are cleaned up.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    seen = asyncio.run(run_fleet(fleet, PATIENCE_SECONDS, say))
    verdict = judge(seen.facts, seen.bounds)
    ends = {job.name: verdict.job_times[f"{job.team}/{job.name}"].end for job in seen.jobs.values()}
    wrong = [*verdict.found[:FOUND_SHOWN]]
    wrong += [
        f"{name} ended {end}, not {seen.jobs[name].end}" for name, end in ends.items() if end != seen.jobs[name].end
    ]
    wrong += [f"left: {leftovers(verdict.left)}"] if leftovers(verdict.left) else []
    for what, (seconds, whose), bound in (
        ("a gang in part", verdict.longest_part, PART_SECONDS),
        ("pods without quota", verdict.longest_overlap, OVERLAP_SECONDS),
    ):
        if seconds > bound:
            wrong.append(f"{what} for {seconds:.0f} s, at most {bound:.0f}: {whose}")
    say(f"report: {keep(seen, verdict)}")
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


def _number(variable: str, default: int) -> int:
    text = os.environ.get(variable) or str(default)
    if not text.isdecimal() or int(text) < 1:
        raise SystemExit(f"{variable} is {text!r}; it must be a positive integer")
    return int(text)


if __name__ == "__main__":
    main()
