"""Whatever is disturbed, a story ends as it does undisturbed: the same world, one cluster, one submission.

Each scenario is told once undisturbed, and then again with each disturbance at its moments: at every second one for
stops, at one for the others; `make chaos` uses all moments. Then hypothesis combines up to three disturbances in one
story.
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
from property.disturbances import DISTURBANCES, Moment
from property.operators import Request
from property.scenarios import SCENARIOS, fingerprint
from property.tally import FULL, MIXTURES, PARTS, TALLY

from rljob.api.status import State
from rljob.cluster.errors import Invalid
from rljob.core.reasons import Reason

# The unit tests alone reach every branch; measuring coverage here would cost minutes.
pytestmark = pytest.mark.no_cover

SAMPLE = 1
"""Moments of each disturbance in each scenario that `make test` tries."""
STOPS_EVERY = 2
"""Interval of the writes of a scenario at which `make test` stops the operator."""
SEEDS = 5
FORGETFUL = frozenset({"fail, status lost", "preempt, status lost"})
"""An attempt that ended while the operator was away for a minute is not written down, and is forgotten with the status.
That no second driver is sent and the job ends well holds all the same."""


@dataclass(frozen=True)
class Told:
    """A story as it goes undisturbed."""

    words: tuple[str, ...]
    events: int
    left: dict[str, object]
    left_without_words: dict[str, object]

    def moments(self, moment: Moment) -> range:
        """Return every number that a disturbance can have."""
        return range(1, 1 + {Moment.WRITE: len(self.words), Moment.EVENT: self.events, Moment.SEED: SEEDS}[moment])


@functools.cache
def undisturbed(name: str) -> Told:
    """Tell a story undisturbed."""
    scenario = SCENARIOS[name]
    with contextlib.closing(scenario.begin()) as world:
        scenario.play(world)
        assert world.tried == len(world.words), "a write failed"
        return Told(tuple(world.words), world.watch.seen, fingerprint(world), fingerprint(world, words=False))


def tell(name: str, *disturbances: tuple[str, int]) -> None:
    """Tell a story with disturbances, and compare its end."""
    scenario, plain = SCENARIOS[name], undisturbed(name)
    rows = [(DISTURBANCES[row], number) for row, number in disturbances]
    TALLY["stories"] += 1
    with contextlib.closing(scenario.begin()) as world:
        for row, number in rows:
            row.arm(world, number)
        scenario.play(world)
        words = all(row.in_time for row, _ in rows)
        expected = plain.left if words else plain.left_without_words
        left = fingerprint(world, words=words)
        if name in FORGETFUL and not (words and len(rows) == 1):
            left, expected = without_attempts(left), without_attempts(expected)
        assert left == expected, f"{name}, with {disturbances}"


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
        # Stories begin alike: of two with the same beginning, one is stopped at its odd writes, one at its even ones.
        yield from numbers[sorted(SCENARIOS).index(name) % STOPS_EVERY :: STOPS_EVERY]
        return
    for part in range(SAMPLE):
        digest = hashlib.sha256(f"{name}/{row}/{part}".encode()).digest()
        yield numbers[int.from_bytes(digest[:4], "big") % len(numbers)]


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_story_in_peace_ends_as_it_should_and_is_over(name: str) -> None:
    scenario = SCENARIOS[name]
    with contextlib.closing(scenario.begin()) as world:
        scenario.play(world)
        assert (world.status.state if world.job else None) == scenario.ends
        words, version = list(world.words), world.job
        world.stop_operator()
        world.clock.advance(1_000_000)
        world.settle()
        assert (world.words, world.job) == (words, version), "the operator wrote to a finished job"


@pytest.mark.parametrize("row", DISTURBANCES)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_disturbance_changes_nothing_in_the_end(name: str, row: str) -> None:
    for number in some(name, row, undisturbed(name).moments(DISTURBANCES[row].moment)):
        tell(name, (row, number))


@pytest.mark.parametrize(
    ("name", "disturbances"),
    [
        ("device fault", (("a watch that died", 3), ("an ex-leader that wakes two acts later", 2))),
        ("half of the nodes", (("a watch that died", 1), ("an ex-leader that wakes an act later", 2))),
    ],
)
def test_a_cluster_of_an_ex_leader_that_no_watch_shows_has_no_other_beside_it(
    name: str, disturbances: tuple[tuple[str, int], ...]
) -> None:
    tell(name, *disturbances)


def _invalid(number: int, request: Request) -> Failure | None:
    return Failure(Invalid("no")) if request.number == number else None


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_child_that_the_server_finds_wrong_ends_the_job_and_holds_nothing(name: str) -> None:
    scenario, plain = SCENARIOS[name], undisturbed(name)
    for number in some(name, "invalid", plain.moments(Moment.WRITE)):
        word = plain.words[number - 1]
        makes_child = word.startswith("create ") and word != "create Secret"
        if makes_child and number > plain.words.index("submit"):
            continue  # the story would continue without its job
        with contextlib.closing(scenario.begin()) as world:
            world.fates.append(functools.partial(_invalid, number))
            if makes_child:
                scenario.play_out(world)
                assert (world.status.state, world.status.reason) == (State.FAILED, Reason.INVALID_MANIFEST)
            else:
                scenario.play(world)
                assert fingerprint(world, words=False) == plain.left_without_words, f"{name}, invalid: {word}"


MIXED = sorted(set(SCENARIOS) - {"fail unheard"})
"""Stories into which disturbances are mixed: in that one the exporter is silent for nearly as long as its last word is
waited for, and two disturbances on top of it outlast the wait. Then Ray's word ends the attempt, as it should."""


@st.composite
def mixtures(draw: st.DrawFn) -> tuple[str, list[tuple[str, int]]]:
    """Choose a story and its disturbances."""
    name = draw(st.sampled_from(MIXED))
    rows = draw(st.lists(st.sampled_from(sorted(DISTURBANCES)), min_size=2, max_size=3, unique=True))
    told = undisturbed(name)
    return name, [(row, draw(st.sampled_from(told.moments(DISTURBANCES[row].moment)))) for row in rows]


@pytest.mark.parametrize("part", range(PARTS))
@settings(
    derandomize=not FULL,
    max_examples=-(-MIXTURES // PARTS),
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)
@given(mixture=mixtures())
def test_no_mixture_of_disturbances_changes_anything_in_the_end(
    mixture: tuple[str, list[tuple[str, int]]], part: int
) -> None:
    del part
    TALLY["examples: mixtures of disturbances"] += 1
    tell(mixture[0], *mixture[1])
