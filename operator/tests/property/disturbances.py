"""Disturbances of a story, as data: each row prepares a world so that something happens at a given moment.

A moment is the number of a write, of an event, or just a seed. Whatever is disturbed, the story must end as it does
without a disturbance.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass

from doubles.fake import Failure
from property.operators import Fate, Request
from property.world import World

from rljob.cluster.errors import ClusterError, Conflict, Forbidden, Invalid, OutcomeUnknown, RateLimited, Unavailable

BURST = 5
"""Number of consecutive requests that fail, including reads."""
OUTAGE_SECONDS = 60.0
QUOTA_SECONDS = 20.0
AWAY_SECONDS = 600.0


class Moment(enum.Enum):
    """What the number of a disturbance counts."""

    WRITE = "write"
    EVENT = "event"
    SEED = "seed"
    """Nothing: the disturbance lasts for the whole story, and the number varies it."""


@dataclass(frozen=True)
class Disturbance:
    """One row."""

    arm: Callable[[World, int], None]
    moment: Moment = Moment.WRITE
    in_time: bool = False
    """Whether the operator still sees everything when it happens, so that its messages are the same too."""


def _stop_after(world: World, number: int) -> None:
    world.stops = lambda write: write == number


def _stop_twice(world: World, number: int) -> None:
    world.stops = lambda write: write in (number, number + 1)


def _stop_always(world: World, number: int) -> None:
    world.stops = lambda write: (write + number) % 5 != 0


def _stay_away(world: World, number: int) -> None:
    def stop(write: int) -> bool:
        if write != number:
            return False
        world.away_until = world.clock.monotonic() + AWAY_SECONDS
        return True

    world.stops = stop


def _fail(error: ClusterError, *, committed: bool = False, times: int = 1) -> Callable[[World, int], None]:
    """Make writes fail, starting with a given one."""

    def arm(world: World, number: int) -> None:
        failing = range(number, number + times)
        world.fates.append(lambda request: Failure(error, committed) if request.number in failing else None)

    return arm


def _refuse(world: World, number: int) -> None:
    """Reject a write, and two retries; a rejected child ends a job, which another test covers."""
    refused = ""

    def fate(request: Request) -> Failure | None:
        nonlocal refused
        if request.number == number and not request.word.startswith("create "):
            refused = request.word
        again = request.word == refused and request.number in range(number, number + 3)
        return Failure(Invalid("admission webhook says no")) if refused and again else None

    world.fates.append(fate)


def _use_up_quota(world: World, number: int) -> None:
    """Reject every creation for a while, starting with a given write."""
    until = 0.0

    def fate(request: Request) -> Failure | None:
        nonlocal until
        until = world.clock.monotonic() + QUOTA_SECONDS if request.number == number else until
        creates = request.word.startswith("create ") and request.writes
        return Failure(Forbidden("exceeded quota")) if creates and world.clock.monotonic() < until else None

    world.fates.append(fate)


def _expire_reads(world: World, number: int) -> None:
    """Let reads expire for a while, starting with a given write."""
    left = 0

    def fate(request: Request) -> Failure | None:
        nonlocal left
        left = BURST if request.number == number else left
        if request.to_head or request.writes or left == 0:
            return None
        left -= 1
        return Failure(Unavailable("410 the provided continue parameter is too old"))

    world.fates.append(fate)


def _fail_all(error: ClusterError) -> Callable[[World, int], None]:
    """Make every request to the API server fail for a while, starting with a given write."""

    def arm(world: World, number: int) -> None:
        left = BURST

        def fate(request: Request) -> Failure | None:
            nonlocal left
            if request.to_head and request.number != number:
                return None
            left -= 1 if request.number == number or left < BURST else 0
            return Failure(error) if 0 <= left < BURST else None

        world.fates.append(fate)

    return arm


def _at_write(number: int, begin: Callable[[], None]) -> Fate:
    def fate(request: Request) -> None:
        if request.number == number:
            begin()

    return fate


def _cut_off(world: World, number: int) -> None:
    world.fates.append(_at_write(number, lambda: world.begin_outage(OUTAGE_SECONDS)))


def _silence_heads(world: World, number: int) -> None:
    def begin() -> None:
        world.heads_silent_until = world.clock.monotonic() + OUTAGE_SECONDS

    world.fates.append(_at_write(number, begin))


def _freeze(acts: int) -> Callable[[World, int], None]:
    """Freeze the leader before it sends a write, and resume it that many acts later."""

    def arm(world: World, number: int) -> None:
        world.freezes_at, world.ex_leader_sleeps = number, acts

    return arm


def _lose_event(world: World, number: int) -> None:
    world.watch.lost = {number}


def _end_watch(world: World, number: int) -> None:
    """End a watch without notice, until the operator lists again."""
    world.watch.lost = set(range(number, number + 20))


def _double_events(world: World, number: int) -> None:
    del number
    world.watch.doubled = True


def _shuffle_events(world: World, number: int) -> None:
    world.watch.shuffle = random.Random(number)  # noqa: S311 - a seed of a test


def _delay_events(world: World, number: int) -> None:
    world.watch.lag = 1 + number % 5


DISTURBANCES: dict[str, Disturbance] = {
    "stopped": Disturbance(_stop_after, in_time=True),
    "stopped twice": Disturbance(_stop_twice, in_time=True),
    "stopped after almost every write": Disturbance(_stop_always, Moment.SEED, in_time=True),
    "stopped, and away for ten minutes": Disturbance(_stay_away),
    "a write not done": Disturbance(_fail(Unavailable("down"))),
    "a write done, its answer lost": Disturbance(_fail(OutcomeUnknown("lost"), committed=True)),
    "answers lost in a row": Disturbance(_fail(OutcomeUnknown("lost"), committed=True, times=3)),
    "conflicts in a row": Disturbance(_fail(Conflict("modified"), times=3)),
    "a write forbidden": Disturbance(_fail(Forbidden("exceeded quota"))),
    "a quota that is used up for a while": Disturbance(_use_up_quota),
    "a write found wrong in a row": Disturbance(_refuse),
    "reads that have expired": Disturbance(_expire_reads),
    "too many requests": Disturbance(_fail_all(RateLimited("slower", retry_after_seconds=7.0))),
    "errors of the server": Disturbance(_fail_all(OutcomeUnknown("500 etcdserver: leader changed"))),
    "an outage": Disturbance(_cut_off),
    "silent heads": Disturbance(_silence_heads),
    "an ex-leader that wakes at once": Disturbance(_freeze(0)),
    "an ex-leader that wakes an act later": Disturbance(_freeze(1)),
    "an ex-leader that wakes two acts later": Disturbance(_freeze(2)),
    "an ex-leader that wakes at the end": Disturbance(_freeze(99)),
    "an event lost": Disturbance(_lose_event, Moment.EVENT),
    "a watch that died": Disturbance(_end_watch, Moment.EVENT),
    "every event twice": Disturbance(_double_events, Moment.SEED, in_time=True),
    "events out of order": Disturbance(_shuffle_events, Moment.SEED),
    "events late": Disturbance(_delay_events, Moment.SEED),
}
