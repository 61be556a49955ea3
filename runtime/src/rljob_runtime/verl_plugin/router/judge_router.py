"""The router of reward.judge: verl's, with a count of its requests, which the trainer reads after each step.

A reward function asks the judge by HTTP and may hide its failures, so a judge that is gone would look like a model that
does not learn. verl's own answers every error of an engine with a bare 500; here the engine's answer is passed on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import aiohttp
from fastapi import Request
from fastapi.responses import JSONResponse, Response
from verl.experimental.reward_loop.router import naive_router

from rljob_runtime.spool.judge_metrics import COUNTS_PATH, JudgeCounts

LOOK_SECONDS = 1.0
"""Between looks whether the client still waits."""
ATTEMPTS = 3
"""As in verl's own router."""
ERROR_STATUS = 400
TEXT_MAX = 300
"""Characters of the first error that are kept."""


class CountingRouter(naive_router.NaiveRouter):  # type: ignore[misc] # verl ships no types
    """Runs in a process of its own, which verl forks from the driver (naive_router.py:49-80, 0.9.1)."""

    def __init__(self, *arguments: Any, **options: Any) -> None:  # noqa: ANN401 - verl's signature
        self._counts = JudgeCounts()
        super().__init__(*arguments, **options)

    async def _make_async_request(self, request: Request, endpoint: str) -> Any:  # noqa: ANN401 - verl's signature
        """Forward a request. One whose client no longer waits is cancelled, and has failed."""
        if endpoint == COUNTS_PATH:
            return asdict(self._counts)
        body, begun = await request.body(), time.monotonic()
        forwarded = asyncio.ensure_future(self._forward(request, endpoint, body))
        while not (await asyncio.wait((forwarded,), timeout=LOOK_SECONDS))[0]:
            if await request.is_disconnected():
                forwarded.cancel()
                self._add(time.monotonic() - begun, "the reward function did not wait for the answer")
                return JSONResponse({"error": "the client is gone"}, status_code=499)
        answer = forwarded.result()
        problem = "" if answer.status_code < ERROR_STATUS else _text(answer)
        self._add(time.monotonic() - begun, problem)
        return answer

    async def _forward(self, request: Request, endpoint: str, body: bytes) -> Response:
        """Forward it, again where the connection ends: an engine closes those that were idle for seconds."""
        url, headers, seen = self._select_worker(), dict(request.headers), ""
        try:
            for _ in range(ATTEMPTS):
                try:
                    return await self._asked(request.method, f"{url}/{endpoint}", body, headers)
                except aiohttp.ClientConnectionError as error:
                    seen = f"{type(error).__name__}: {error}"
        except (aiohttp.ClientError, TimeoutError) as error:
            seen = f"{type(error).__name__}: {error}"
        finally:
            self._release_worker(url)
        return JSONResponse({"error": seen}, status_code=502)

    async def _asked(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> Response:
        async with self.client.request(method, url, data=body, headers=headers) as response:
            kind = response.headers.get("Content-Type")
            return Response(await response.read(), status_code=response.status, media_type=kind)

    def _add(self, seconds: float, problem: str) -> None:
        seen, failed = self._counts, bool(problem)
        first = seen.first_error or problem
        self._counts = JudgeCounts(seen.succeeded + (not failed), seen.failed + failed, seen.seconds + seconds, first)


def _text(answer: Response) -> str:
    said = bytes(answer.body).decode(errors="replace")
    return f"{answer.status_code} {' '.join(said.split())}"[:TEXT_MAX]


@contextmanager
def counting() -> Iterator[None]:
    """Let verl create this router within the block."""
    verls = naive_router.NaiveRouter
    naive_router.NaiveRouter = CountingRouter
    try:
        yield
    finally:
        naive_router.NaiveRouter = verls
