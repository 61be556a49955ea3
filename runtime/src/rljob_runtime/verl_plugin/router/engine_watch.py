"""End the actor of a replica whose engine has ended, so that Ray reports the loss.

The engine is a process of its own. As released, verl's actor lives on without it (0.9.1), and a run without another
replica waits for responses that nobody generates. The engine writes to the actor's log, whose last lines become the
outcome of the attempt (lost_processes.py).
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable
from typing import Protocol

POLL_SECONDS = 1.0
SHUTDOWN_SECONDS = 5.0
"""For what is left of the engine, which may hold a device although it does not answer."""
EXIT_CODE = 1
"""As verl's actors on the other nodes of an engine (vllm_async_server.py, run_headless)."""


class Engine(Protocol):
    """vLLM's AsyncLLM, as far as it is used."""

    @property
    def errored(self) -> bool:
        """Whether the engine has ended or failed (v1/engine/async_llm.py:1054, 0.23)."""

    def shutdown(self) -> object:
        """End the engine's processes."""


def attach(engine: Engine) -> asyncio.Task[None]:
    """Watch an engine in the event loop of its actor."""
    return asyncio.create_task(watch(engine, os._exit))


async def watch(engine: Engine, leave: Callable[[int], object]) -> None:
    """Wait for the engine's end, then leave."""
    while not engine.errored:  # noqa: ASYNC110 - vLLM has no event for it
        await asyncio.sleep(POLL_SECONDS)
    print("rljob: the engine of this replica has ended", file=sys.stderr, flush=True)  # noqa: T201
    await asyncio.wait([asyncio.create_task(asyncio.to_thread(engine.shutdown))], timeout=SHUTDOWN_SECONDS)
    leave(EXIT_CODE)
