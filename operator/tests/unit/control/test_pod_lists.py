"""How often pods may be listed."""

from builders import at
from doubles.clock import FrozenClock

from rljob.cluster.limiter import TimeShare, TokenBucket
from rljob.control.job_memory import JobMemory
from rljob.control.pod_lists import PodLists
from rljob.core.observed import UNSEEN, Unseen

CLOCK = FrozenClock()


def lists(capacity: int = 9, clock: FrozenClock = CLOCK) -> PodLists:
    return PodLists(
        TokenBucket(1.0, capacity, lambda: 0.0),
        TimeShare(0.1, 2.0, 60.0, clock.monotonic),
        TokenBucket(1.0, capacity, lambda: 0.0),
    )


async def ask() -> str | Unseen:
    return "pods"


async def test_a_job_that_starts_is_listed_no_oftener_than_it_is_worth() -> None:
    looks, a, b = lists(), JobMemory(), JobMemory()
    assert await looks.diagnose(a, at(0), 10.0, ask) == "pods"
    assert await looks.diagnose(a, at(9), 10.0, ask) is UNSEEN
    assert await looks.diagnose(b, at(9), 10.0, ask) == "pods"
    assert await looks.diagnose(a, at(10), 10.0, ask) == "pods"


async def test_a_look_that_is_wanted_now_waits_for_no_other() -> None:
    looks, a = lists(), JobMemory()
    assert [await looks.diagnose(a, at(0), every, ask) for every in (10.0, 0.0, 0.0)] == ["pods"] * 3
    assert await looks.diagnose(a, at(5), 10.0, ask) is UNSEEN


async def test_a_list_that_the_bound_of_all_refused_was_none() -> None:
    looks, a, b = lists(capacity=1), JobMemory(), JobMemory()
    assert await looks.diagnose(a, at(0), 10.0, ask) == "pods"
    assert await looks.diagnose(b, at(0), 10.0, ask) is UNSEEN
    assert b.pods_listed is None
    assert await looks.urgent(ask) == "pods"
    assert await looks.urgent(ask) is UNSEEN


async def test_a_slow_server_is_asked_for_fewer_diagnoses_and_every_decision() -> None:
    clock = FrozenClock()
    looks, a, b = lists(clock=clock), JobMemory(), JobMemory()

    async def slow() -> str | Unseen:
        clock.advance(3.0)
        return "pods"

    assert await looks.diagnose(a, at(0), 0.0, slow) == "pods"
    assert await looks.diagnose(b, at(0), 0.0, slow) is UNSEEN
    assert await looks.urgent(slow) == "pods"
    clock.advance(5.0)
    assert await looks.diagnose(b, at(0), 0.0, slow) is UNSEEN
    clock.advance(3.0)
    assert await looks.diagnose(b, at(0), 0.0, slow) == "pods"
