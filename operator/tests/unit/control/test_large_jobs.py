"""Large jobs are computed outside the event loop, in turn."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator

import pytest

from rljob.control.large_jobs import BUSY_SECONDS, LARGE_BYTES, LargeJobs
from rljob.control.memory_budget import MemoryBudget
from rljob.core.observed import Manifest


class Clock:
    time = 0.0

    def __call__(self) -> float:
        return self.time


def job(uid: str, namespace: str = "team") -> Manifest:
    return {"metadata": {"uid": uid, "namespace": namespace}}


def line(clock: Clock) -> LargeJobs:
    budget = MemoryBudget()
    budget.take("large", "team", LARGE_BYTES, begun=False)
    budget.take("other", "others", LARGE_BYTES, begun=False)
    budget.take("small", "team", LARGE_BYTES - 1, begun=False)
    return LargeJobs(clock, budget)


async def test_a_small_job_is_computed_at_once_and_never_waits() -> None:
    large = line(Clock())
    assert await large.run(job("small"), threading.get_ident) == threading.get_ident()
    assert large.claim(job("small")) == 0
    large.release(job("small"))


async def test_a_large_job_is_computed_in_a_thread_and_its_namespace_rests_three_times_as_long() -> None:
    clock = Clock()
    large = line(clock)

    def compute() -> int:
        clock.time += 0.5
        return threading.get_ident()

    assert await large.run(job("large"), compute) != threading.get_ident()
    assert large.claim(job("large")) == 1.5
    assert large.claim(job("small")) == large.claim(job("other", "others")) == 0
    assert await large.run(job("large"), compute) != threading.get_ident()
    assert large.claim(job("large")) == 3.0, "what two workers computed in a row is paid for twice"


async def test_a_namespace_has_one_large_job_in_a_round_and_the_others_look_again() -> None:
    large = line(Clock())
    large.budget.take("second", "team", LARGE_BYTES, begun=False)
    assert large.claim(job("large")) == large.claim(job("large")) == 0
    assert large.claim(job("second")) == BUSY_SECONDS
    assert large.claim(job("other", "others")) == 0
    large.release(job("second"))
    assert large.claim(job("second")) == BUSY_SECONDS
    large.release(job("large"))
    assert large.claim(job("second")) == 0


async def test_the_loop_turns_meanwhile() -> None:
    large, done = line(Clock()), threading.Event()
    running = asyncio.create_task(large.run(job("large"), lambda: done.wait(30)))
    await asyncio.sleep(0)
    done.set()
    assert await running


async def test_parts_are_exhausted_and_an_error_is_raised() -> None:
    def parts() -> Generator[None, None, str]:
        yield
        yield
        return "found"

    def broken() -> Generator[None, None, str]:
        yield
        raise ValueError("a bug")

    large = line(Clock())
    assert await large.take(job("large"), parts()) == "found"
    with pytest.raises(ValueError, match="a bug"):
        await large.take(job("large"), broken())
    assert await large.take(job("large"), parts()) == "found"
