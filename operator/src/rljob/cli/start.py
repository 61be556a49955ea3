"""What a start is doing, for somebody who reads it now: the status holds how long a stage had lasted at its write.

Used by every command that shows a job, and by the demo. Pure: takes the time and returns text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rljob.core import start_message

if TYPE_CHECKING:
    from rljob.core.observed import Manifest

STARTING = "Starting"


def current(text: str, now: datetime) -> str:
    """Return a message of the status, with the seconds until now if it is about the stage of a start."""
    written = start_message.read(text)
    return text if written is None else written.now(now)


def words(status: Mapping[str, Any]) -> str:
    """Return the stage of a start without its seconds, which change all the time; empty without one."""
    written = start_message.read(str(status.get("message") or ""))
    return "" if written is None else written.words


def stage(status: Mapping[str, Any], now: datetime) -> str:
    """Return what a starting job does; empty if its status does not say."""
    written = start_message.read(str(status.get("message") or "")) if status.get("state") == STARTING else None
    return "" if written is None else written.now(now)


def with_current(job: Manifest, now: datetime) -> dict[str, Any]:
    """Return a job whose messages have the seconds until now."""
    status = job.get("status") or {}
    changed = {**status}
    if status.get("message"):
        changed["message"] = current(str(status["message"]), now)
    if status.get("conditions"):
        changed["conditions"] = [
            {**told, "message": current(str(told.get("message") or ""), now)} for told in status["conditions"]
        ]
    return {**job, "status": changed}
