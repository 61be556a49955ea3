"""Choose the data-parallel rank of a request inside a replica: the one that has the fewest at this moment.

vLLM's client chooses by counts that its coordinator publishes every 100 ms (vllm/v1/engine/core_client.py:1398-1421 and
coordinator.py:125, 0.23.0), and a request stays where it was sent. The router sends a request when a response has ended
(`late_binding`): by the old counts that rank is still full, and the request would wait behind another rank's.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing
from typing import Any


class RankChoice:
    """Generates like vLLM's `AsyncLLM.generate`, on the rank that the caller or else this object chooses."""

    def __init__(self, generate: Callable[..., AsyncGenerator[Any, None]], ranks: int) -> None:
        self._generate = generate
        self._running = [0] * ranks

    async def generate(
        self,
        *request: Any,  # noqa: ANN401 - vLLM's arguments
        data_parallel_rank: int | None = None,
        **options: Any,  # noqa: ANN401 - vLLM's arguments
    ) -> AsyncIterator[Any]:
        """Yield the outputs of a request."""
        fewest = self._running.index(min(self._running))
        rank = fewest if data_parallel_rank is None else data_parallel_rank
        self._running[rank] += 1
        try:
            # Closed with this one, so that an abandoned request has left the engine before its room is given away.
            async with aclosing(self._generate(*request, data_parallel_rank=rank, **options)) as outputs:
                async for output in outputs:
                    yield output
        finally:
            self._running[rank] -= 1


def attach(engine: Any) -> None:  # noqa: ANN401 - vLLM ships no types
    """Let an engine of several ranks choose so."""
    ranks = engine.vllm_config.parallel_config.data_parallel_size
    if ranks > 1:
        engine.generate = RankChoice(engine.generate, ranks).generate
