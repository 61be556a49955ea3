"""Which data-parallel rank of a replica gets a request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from rljob_runtime.verl_plugin.router.rank_choice import RankChoice


class Engine:
    """Two ranks; a request ends when its event is set."""

    def __init__(self) -> None:
        self.ranks: list[int] = []

    async def generate(self, end: asyncio.Event, *, data_parallel_rank: int) -> AsyncGenerator[str, None]:
        """Note the rank."""
        self.ranks.append(data_parallel_rank)
        await end.wait()
        yield "output"


async def ask(choice: RankChoice, end: asyncio.Event, **options: int) -> list[str]:
    return [output async for output in choice.generate(end, **options)]


@pytest.mark.parametrize("cancelled", [False, True], ids=["ends", "is cancelled"])
def test_the_rank_of_a_request_that_is_over_gets_the_next(cancelled: bool) -> None:
    async def scene() -> list[int]:
        engine, ends = Engine(), [asyncio.Event() for _ in range(4)]
        choice = RankChoice(engine.generate, ranks=2)
        tasks = []
        for number, end in enumerate(ends):
            tasks.append(asyncio.create_task(ask(choice, end)))
            await asyncio.sleep(0)
            if number == 1:
                tasks[1].cancel() if cancelled else end.set()
                await asyncio.wait({tasks[1]})
        for end in ends:
            end.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        return engine.ranks

    assert asyncio.run(scene()) == [0, 1, 1, 0]


def test_a_rank_that_the_caller_names_is_kept() -> None:
    engine, end = Engine(), asyncio.Event()
    end.set()
    choice = RankChoice(engine.generate, ranks=2)
    assert asyncio.run(ask(choice, end, data_parallel_rank=1)) == ["output"]
    assert engine.ranks == [1]
