"""Streams of bytes as lines, with a bound on their length, and streams that end although their connection does not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import suppress

IDLE_SECONDS = 5.0
"""How long a stream may be silent before it is asked whether it is over."""


async def lines(chunks: AsyncIterator[bytes], most: int) -> AsyncIterator[bytes]:
    """Yield lines without their ends; a longer one than `most` bytes is cut."""
    rest = b""
    cut = False
    async for chunk in chunks:
        *whole, tail = chunk.split(b"\n")
        for line in whole:
            if not cut:
                yield (rest + line)[:most]
            rest, cut = b"", False
        rest += tail
        if len(rest) > most and not cut:
            yield rest[:most]
            cut = True
        if cut:
            rest = b""
    if rest:
        yield rest


async def until_over(chunks: AsyncGenerator[bytes], is_over: Callable[[], Awaitable[bool]]) -> AsyncGenerator[bytes]:
    """Yield chunks until they end. While none comes, ask now and then whether there can be another one.

    A connection to a node that is lost neither ends nor says so.
    """
    pending: asyncio.Task[bytes | None] | None = None
    over = False
    try:
        while True:
            if pending is None:
                pending = asyncio.create_task(_next(chunks))
            done, _ = await asyncio.wait({pending}, timeout=IDLE_SECONDS)
            if done:
                chunk, pending = pending.result(), None
                if chunk is None:
                    return
                yield chunk
            elif over:
                return
            else:
                # What was printed before the end may still be on its way: one more turn.
                over = await is_over()
    finally:
        if pending is not None:
            pending.cancel()
            with suppress(asyncio.CancelledError):
                await pending
        await chunks.aclose()


async def _next(chunks: AsyncGenerator[bytes]) -> bytes | None:
    return await anext(chunks, None)
