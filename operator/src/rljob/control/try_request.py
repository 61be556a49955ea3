"""Turns a failed request into UNSEEN: "could not be read" must never be taken for "does not exist"."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from rljob.cluster.errors import OutsideError
from rljob.core.observed import UNSEEN, Unseen
from rljob.telemetry.log import Log

log = Log(__name__)
T = TypeVar("T")


async def seen(
    what: str, ask: Callable[[], Awaitable[T]], failed: Callable[[OutsideError], None] = lambda _: None
) -> T | Unseen:
    """Return the answer, or UNSEEN if the request failed, which is logged and told to `failed`."""
    try:
        return await ask()
    except OutsideError as error:
        failed(error)
        log.info("Could not be observed", what=what, reason=error.reason, error=str(error))
        return UNSEEN
