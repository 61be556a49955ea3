"""Faults of a scenario, as data: each row prepares a world so that something happens at a given moment.

A moment is the number of a write, of an event, or just a seed. With any fault, the scenario must end as it does
without one.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Callable
from dataclasses import dataclass

from doubles.fake import Failure
from property.operators import Request, RequestFault
from property.world import World

from rljob.cluster.errors import ClusterError, Conflict, Forbidden, Invalid, OutcomeUnknown, RateLimited, Unavailable

BURST = 5
"""Number of consecutive requests that fail, including reads."""
OUTAGE_SECONDS = 60.0
QUOTA_SECONDS = 20.0
AWAY_SECONDS = 600.0


class Moment(enum.Enum):
    """What the number of a fault counts."""

    WRITE = "write"
    EVENT = "event"
    SEED = "seed"
    """Nothing: the fault lasts for the whole scenario, and the number varies it."""


@dataclass(frozen=True)
class Fault:
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
        world.request_faults.append(lambda request: Failure(error, committed) if request.number in failing else None)

    return arm


def _refuse(world: World, number: int) -> None:
    """Reject a write, and two retries; a rejected child ends a job, which another test covers."""
    refused = ""

    def fault(request: Request) -> Failure | None:
        nonlocal refused
        if request.number == number and not request.word.startswith("create "):
            refused = request.word
        again = request.word == refused and request.number in range(number, number + 3)
        return Failure(Invalid("admission webhook says no")) if refused and again else None

    world.request_faults.append(fault)


def _use_up_quota(world: World, number: int) -> None:
    """Reject every creation for a while, starting with a given write."""
    until = 0.0

    def fault(request: Request) -> Failure | None:
        nonlocal until
        until = world.clock.monotonic() + QUOTA_SECONDS if request.number == number else until
        creates = request.word.startswith("create ") and request.writes
        return Failure(Forbidden("exceeded quota")) if creates and world.clock.monotonic() < until else None

    world.request_faults.append(fault)


def _expire_reads(world: World, number: int) -> None:
    """Let reads expire for a while, starting with a given write."""
    left = 0

    def fault(request: Request) -> Failure | None:
        nonlocal left
        left = BURST if request.number == number else left
        if request.to_head or request.writes or left == 0:
            return None
        left -= 1
        return Failure(Unavailable("410 the provided continue parameter is too old"))

    world.request_faults.append(fault)


def _fail_all(error: ClusterError) -> Callable[[World, int], None]:
    """Make every request to the API server fail for a while, starting with a given write."""

    def arm(world: World, number: int) -> None:
        left = BURST

        def fault(request: Request) -> Failure | None:
            nonlocal left
            if request.to_head and request.number != number:
                return None
            left -= 1 if request.number == number or left < BURST else 0
            return Failure(error) if 0 <= left < BURST else None

        world.request_faults.append(fault)

    return arm


def _at_write(number: int, begin: Callable[[], None]) -> RequestFault:
    def fault(request: Request) -> None:
        if request.number == number:
            begin()

    return fault


def _cut_off(world: World, number: int) -> None:
    world.request_faults.append(_at_write(number, lambda: world.begin_outage(OUTAGE_SECONDS)))


def _silence_heads(world: World, number: int) -> None:
    def begin() -> None:
        world.heads_silent_until = world.clock.monotonic() + OUTAGE_SECONDS

    world.request_faults.append(_at_write(number, begin))


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


FAULTS: dict[str, Fault] = {
    "stopped": Fault(_stop_after, in_time=True),
    "stopped twice": Fault(_stop_twice, in_time=True),
    "stopped after almost every write": Fault(_stop_always, Moment.SEED, in_time=True),
    "stopped, and away for ten minutes": Fault(_stay_away),
    "a write not done": Fault(_fail(Unavailable("down"))),
    "a write done, its answer lost": Fault(_fail(OutcomeUnknown("lost"), committed=True)),
    "answers lost in a row": Fault(_fail(OutcomeUnknown("lost"), committed=True, times=3)),
    "conflicts in a row": Fault(_fail(Conflict("modified"), times=3)),
    "a write forbidden": Fault(_fail(Forbidden("exceeded quota"))),
    "a quota that is used up for a while": Fault(_use_up_quota),
    "a write found wrong in a row": Fault(_refuse),
    "reads that have expired": Fault(_expire_reads),
    "too many requests": Fault(_fail_all(RateLimited("slower", retry_after_seconds=7.0))),
    "errors of the server": Fault(_fail_all(OutcomeUnknown("500 etcdserver: leader changed"))),
    "an outage": Fault(_cut_off),
    "silent heads": Fault(_silence_heads),
    "an ex-leader that wakes at once": Fault(_freeze(0)),
    "an ex-leader that wakes an act later": Fault(_freeze(1)),
    "an ex-leader that wakes two acts later": Fault(_freeze(2)),
    "an ex-leader that wakes at the end": Fault(_freeze(99)),
    "an event lost": Fault(_lose_event, Moment.EVENT),
    "a watch that died": Fault(_end_watch, Moment.EVENT),
    "every event twice": Fault(_double_events, Moment.SEED, in_time=True),
    "events out of order": Fault(_shuffle_events, Moment.SEED),
    "events late": Fault(_delay_events, Moment.SEED),
}
