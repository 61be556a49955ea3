"""Fourteen jobs of three teams on a quarter of the fleet, with a real Kueue: `make fleet` on a small scale.

Durations are not checked, only the order of events and the state at every revision. The time limits are a multiple of
what a busy machine needs; at a timeout, the message contains the waiting jobs and their status.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import pytest_asyncio

from tests.scale.fleet.history import State
from tests.scale.fleet.judge import OVERLAP_SECONDS, PART_SECONDS, Verdict, judge, leftovers
from tests.scale.fleet.mix import Fault, Fleet
from tests.scale.fleet.run import Seen, run_fleet
from tests.scale.plane import ROOT

pytestmark = [
    pytest.mark.integration,
    pytest.mark.queue,
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.timeout(2000),  # The first test waits for the whole run.
]

FLEET = Fleet(jobs=14, seed=16, super_pod_nodes=8, a2_nodes=4, gap_seconds=0.5)
PATIENCE_SECONDS = 900.0
EVENTS = ROOT / "build" / "test" / "fleet-events.log"
"""Status messages of every job with their times, for the diagnosis of slow runs."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def seen() -> Seen:
    seen = await run_fleet(FLEET, PATIENCE_SECONDS, print)
    EVENTS.parent.mkdir(parents=True, exist_ok=True)
    EVENTS.write_text("".join(event_lines(seen)))
    return seen


def event_lines(seen: Seen) -> Iterator[str]:
    """Yield the injected faults, and then the status messages of all jobs in their order."""
    for name, strike in seen.struck.items():
        yield f"{name} is hit by a fault after {strike}\n"
    for fact in seen.facts:
        if isinstance(fact.thing, State):
            yield f"{fact.seconds:6.1f} s  {fact.name}: {fact.thing.state} {fact.thing.message}\n"


@pytest.fixture(scope="module")
def verdict(seen: Seen) -> Verdict:
    return judge(seen.facts, seen.bounds)


async def test_every_job_ends_as_its_driver_did(seen: Seen, verdict: Verdict) -> None:
    ends = {job.name: verdict.job_times[f"{job.team}/{job.name}"].end for job in seen.jobs.values()}
    assert ends == {job.name: job.end for job in seen.jobs.values()}


async def test_quota_nodes_and_blocks_are_kept_at_every_revision(verdict: Verdict) -> None:
    assert verdict.found == []
    assert verdict.looks > 10 * FLEET.jobs


async def test_no_gang_holds_devices_in_part_for_long(verdict: Verdict) -> None:
    assert verdict.longest_part[0] <= PART_SECONDS, verdict.longest_part


async def test_pods_go_soon_after_their_quota(verdict: Verdict) -> None:
    assert verdict.longest_overlap[0] <= OVERLAP_SECONDS, verdict.longest_overlap


async def test_the_fleet_was_full_while_jobs_waited(seen: Seen, verdict: Verdict) -> None:
    waits = [sample for sample in verdict.samples if sample.states.get("Queued", 0)]
    assert waits, "no job had to wait: nothing was judged"
    most = max(sum(given for (_, flavor), given in sample.reserved.items() if flavor == "a3") for sample in waits)
    assert most > seen.fleet.devices("a3") / 2


async def test_nothing_is_left(verdict: Verdict) -> None:
    assert leftovers(verdict.left) == {}


async def test_faults_came_to_pass_and_no_head_was_asked_for_what_it_does_not_have(seen: Seen) -> None:
    assert {struck.partition(": ")[2] for struck in seen.struck.values()} <= {fault.value for fault in Fault}
    assert seen.struck
    assert seen.refusals == []
