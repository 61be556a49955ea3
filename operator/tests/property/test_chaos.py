"""With any fault, a scenario ends as it does without one: the same world, one cluster, one submission.

Each scenario runs once without faults, and then again with them: stopped at every ninth moment, and with a sixth of the
others at one moment. `make chaos` uses all faults and moments. Then hypothesis combines up to three faults in one
scenario.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from doubles.fake import Failure
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from property.chaos import COMBINATIONS, FULL, PARTS, STATISTICS
from property.faults import FAULTS, Moment
from property.fingerprints import fingerprint
from property.operators import Request
from property.scenarios import SCENARIOS

from rljob.api.status import State
from rljob.cluster.errors import Invalid
from rljob.core import times
from rljob.core.reasons import Reason

# The unit tests alone reach every branch; measuring coverage here would cost minutes.
pytestmark = pytest.mark.no_cover

SAMPLE = 1
"""Moments of each fault in each scenario that `make test` tries."""
STOPS_EVERY = 9
"""Interval of the writes of a scenario at which `make test` stops the operator."""
SEEDS = 5
FORGETFUL = frozenset({"fail, status lost", "preempt, status lost"})
"""An attempt that ended while the operator was away for a minute is not written down, and is forgotten with the status.
That no second driver is sent and the job ends well holds all the same."""


@dataclass(frozen=True)
class Recording:
    """What happens in a scenario without faults."""

    words: tuple[str, ...]
    events: int
    left: dict[str, object]
    left_without_words: dict[str, object]

    def moments(self, moment: Moment) -> range:
        """Return every number that a fault can have."""
        return range(1, 1 + {Moment.WRITE: len(self.words), Moment.EVENT: self.events, Moment.SEED: SEEDS}[moment])


@functools.cache
def without_faults(name: str) -> Recording:
    """Run a scenario without faults."""
    scenario = SCENARIOS[name]
    with contextlib.closing(scenario.begin()) as world:
        scenario.play(world)
        assert world.tried == len(world.words), "a write failed"
        return Recording(tuple(world.words), world.watch.seen, fingerprint(world), fingerprint(world, words=False))


def run_with(name: str, *faults: tuple[str, int]) -> None:
    """Run a scenario with faults, and compare its end."""
    scenario, plain = SCENARIOS[name], without_faults(name)
    rows = [(FAULTS[row], number) for row, number in faults]
    STATISTICS["scenarios"] += 1
    with contextlib.closing(scenario.begin()) as world:
        for row, number in rows:
            row.arm(world, number)
        scenario.play(world)
        words = all(row.in_time for row, _ in rows)
        expected = plain.left if words else plain.left_without_words
        left = fingerprint(world, words=words)
        if name in FORGETFUL and not (words and len(rows) == 1):
            left, expected = without_attempts(left), without_attempts(expected)
        assert left == expected, f"{name}, with {faults}"


def without_attempts(left: dict[str, object]) -> dict[str, object]:
    """Leave out what a lost status contains only if it was recorded in time."""
    kept = json.loads(str(left["status"]))
    return left | {
        "status": {name: kept[name] for name in kept.keys() - {"attempts", "counters", "restarts", "budget"}}
    }


def some(name: str, row: str, numbers: range) -> Iterator[int]:
    """Choose moments by the names, so that all scenarios together cover the life evenly."""
    if FULL:
        yield from numbers
        return
    if row == "stopped":
        # Scenarios begin alike: those with the same beginning are stopped at different writes of it.
        yield from numbers[sorted(SCENARIOS).index(name) % STOPS_EVERY :: STOPS_EVERY]
        return
    for part in range(SAMPLE):
        digest = hashlib.sha256(f"{name}/{row}/{part}".encode()).digest()
        yield numbers[int.from_bytes(digest[:4], "big") % len(numbers)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_undisturbed_scenario_ends_in_its_state_and_writes_nothing_afterwards(name: str) -> None:
    scenario = SCENARIOS[name]
    with contextlib.closing(scenario.begin()) as world:
        scenario.play(world)
        assert (world.status.state if world.job else None) == scenario.ends
        words, version = list(world.words), world.job
        world.stop_operator()
        world.clock.advance(1_000_000)
        world.settle()
        assert (world.words, world.job) == (words, version), "the operator wrote to a finished job"


@pytest.mark.parametrize("name", ["head death", "worker death"])
def test_the_causes_of_a_recovery_add_up(name: str) -> None:
    scenario = SCENARIOS[name]
    with contextlib.closing(scenario.begin()) as world:
        scenario.play(world)
        first, second = world.status.attempts
        assert first.recovery == []
        assert second.end_time is not None
        assert first.last_step_time is not None
        span = times.from_text(second.end_time) - times.from_text(first.last_step_time)
        assert 0 < sum(part.seconds for part in second.recovery) <= span.total_seconds()


PAIRS = [
    (name, row)
    for place, name in enumerate(sorted(SCENARIOS))
    for number, row in enumerate(FAULTS)
    if FULL or row == "stopped" or (place + number) % 6 == 0
]
"""Each fault in every sixth scenario, and a sixth of the faults in each scenario; `make chaos` has all."""


@pytest.mark.parametrize(("name", "row"), PAIRS)
def test_a_fault_does_not_change_how_a_scenario_ends(name: str, row: str) -> None:
    for number in some(name, row, without_faults(name).moments(FAULTS[row].moment)):
        run_with(name, (row, number))


@pytest.mark.parametrize(
    ("name", "faults"),
    [
        ("device fault", (("a watch that died", 3), ("an ex-leader that wakes two acts later", 2))),
        ("half of the nodes", (("a watch that died", 1), ("an ex-leader that wakes an act later", 2))),
    ],
)
def test_a_cluster_of_an_ex_leader_that_no_watch_shows_has_no_other_beside_it(
    name: str, faults: tuple[tuple[str, int], ...]
) -> None:
    run_with(name, *faults)


def _invalid(number: int, request: Request) -> Failure | None:
    return Failure(Invalid("no")) if request.number == number else None


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_child_that_the_server_finds_wrong_ends_the_job_and_holds_nothing(name: str) -> None:
    scenario, plain = SCENARIOS[name], without_faults(name)
    for number in some(name, "invalid", plain.moments(Moment.WRITE)):
        word = plain.words[number - 1]
        makes_child = word.startswith("create ") and word != "create Secret"
        if makes_child and number > plain.words.index("submit"):
            continue  # the scenario would continue without its job
        with contextlib.closing(scenario.begin()) as world:
            world.request_faults.append(functools.partial(_invalid, number))
            if makes_child:
                scenario.play_out(world)
                assert (world.status.state, world.status.reason) == (State.FAILED, Reason.INVALID_MANIFEST)
            else:
                scenario.play(world)
                assert fingerprint(world, words=False) == plain.left_without_words, f"{name}, invalid: {word}"


COMBINED = sorted(set(SCENARIOS) - {"fail unheard"})
"""Scenarios in which faults are combined: in that one the exporter is silent for nearly as long as its last word is
waited for, and two faults on top of it outlast the wait. Then Ray's word ends the attempt, as it should."""


@st.composite
def combinations(draw: st.DrawFn) -> tuple[str, list[tuple[str, int]]]:
    """Choose a scenario and its faults."""
    name = draw(st.sampled_from(COMBINED))
    rows = draw(st.lists(st.sampled_from(sorted(FAULTS)), min_size=2, max_size=3, unique=True))
    plain = without_faults(name)
    return name, [(row, draw(st.sampled_from(plain.moments(FAULTS[row].moment)))) for row in rows]


@pytest.mark.parametrize("part", range(PARTS))
@settings(
    derandomize=not FULL,
    max_examples=-(-COMBINATIONS // PARTS),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(combination=combinations())
def test_no_combination_of_faults_changes_how_a_scenario_ends(
    combination: tuple[str, list[tuple[str, int]]], part: int
) -> None:
    del part
    STATISTICS["examples: combinations of faults"] += 1
    run_with(combination[0], *combination[1])
