"""The router of reward.judge: verl's, with a count of its requests, which the trainer reads after each step.

A reward function asks the judge by HTTP and may hide its failures, so a judge that is gone would look like a model that
does not learn.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse
from verl.experimental.reward_loop.router import naive_router

from rljob_runtime.spool.judge_metrics import COUNTS_PATH, JudgeCounts


class CountingRouter(naive_router.NaiveRouter):  # type: ignore[misc] # verl ships no types
    """Runs in a process of its own, which verl forks from the driver (naive_router.py:49-80, 0.9.1)."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - verl's signature
        self._counts = JudgeCounts()
        super().__init__(*arguments, **options)

    async def _make_async_request(self, request: Request, endpoint: str) -> Any:  # noqa: ANN401 - verl's signature
        if endpoint == COUNTS_PATH:
            return asdict(self._counts)
        begun, answered = time.monotonic(), False
        try:
            answer = await super()._make_async_request(request, endpoint)
            answered = not isinstance(answer, JSONResponse)  # Its only one says that there is no engine.
            return answer
        finally:
            self._add(time.monotonic() - begun, answered=answered)

    def _add(self, seconds: float, *, answered: bool) -> None:
        seen = self._counts
        self._counts = JudgeCounts(seen.succeeded + answered, seen.failed + (not answered), seen.seconds + seconds)


@contextmanager
def counting() -> Iterator[None]:
    """Let verl create this router within the block."""
    verls = naive_router.NaiveRouter
    naive_router.NaiveRouter = CountingRouter
    try:
        yield
    finally:
        naive_router.NaiveRouter = verls
