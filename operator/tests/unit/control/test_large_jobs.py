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
    budget.take("large", "team", LARGE_BYTES, whatever=False)
    budget.take("other", "others", LARGE_BYTES, whatever=False)
    budget.take("small", "team", LARGE_BYTES - 1, whatever=False)
    return LargeJobs(clock, budget)


async def test_a_small_job_is_computed_at_once_and_never_waits() -> None:
    large = line(Clock())
    assert await large.run(job("small"), threading.get_ident) == threading.get_ident()
    assert large.wait_seconds(job("small")) == 0


async def test_a_large_job_is_computed_in_a_thread_and_its_namespace_rests_three_times_as_long() -> None:
    clock = Clock()
    large = line(clock)

    def compute() -> int:
        clock.time += 0.5
        return threading.get_ident()

    assert await large.run(job("large"), compute) != threading.get_ident()
    assert large.wait_seconds(job("large")) == 1.5
    assert large.wait_seconds(job("small")) == large.wait_seconds(job("other", "others")) == 0


async def test_the_loop_turns_meanwhile_and_another_large_job_looks_again() -> None:
    large, done = line(Clock()), threading.Event()
    running = asyncio.create_task(large.run(job("large"), lambda: done.wait(30)))
    await asyncio.sleep(0)
    assert large.wait_seconds(job("other", "others")) == BUSY_SECONDS
    done.set()
    assert await running
    assert large.wait_seconds(job("other", "others")) == 0


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
    assert large.wait_seconds(job("other", "others")) == 0
