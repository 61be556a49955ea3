"""Requests whose answer may be missing or too large: what could not be read must never be taken for absent."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from rljob.cluster.errors import OutsideError, Unavailable
from rljob.cluster.kinds import Kind
from rljob.cluster.port import Cluster
from rljob.core.observed import UNSEEN, Manifest, Unseen
from rljob.telemetry.log import Log

LABELLED_LIMIT = 1000
"""Several times what a job leaves that was restarted a hundred times. Any tenant may put the label on more."""

log = Log(__name__)
T = TypeVar("T")


async def seen(
    what: str, ask: Callable[[], Awaitable[T]], failed: Callable[[OutsideError], None] = lambda _: None
) -> T | Unseen:
    """Return the answer, or UNSEEN if the request failed, which is logged and passed to `failed`."""
    try:
        return await ask()
    except OutsideError as error:
        failed(error)
        log.info("Could not be observed", what=what, reason=error.reason, error=str(error))
        return UNSEEN


async def labelled(
    cluster: Cluster, kind: Kind, namespace: str, selector: str, *, metadata_only: bool = False
) -> tuple[Manifest, ...]:
    """Return the objects with a label. Raise Unavailable if there are too many: those that are left out may matter."""
    listing = await cluster.list(kind, namespace, selector, LABELLED_LIMIT, metadata_only=metadata_only)
    if listing.is_cut:
        raise Unavailable(
            f"more than {LABELLED_LIMIT} {kind.resource} of namespace {namespace} have the label {selector}; "
            "delete those that the operator did not create"
        )
    return listing.items
