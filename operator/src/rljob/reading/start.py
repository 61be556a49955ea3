"""What a start is doing, for somebody who reads it now: the messages in the status are as old as its last write.

Used by every command that shows a job, and by the demo. Pure: takes the time and returns text.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from rljob.core import start_message, times
from rljob.core.reasons import Reason

if TYPE_CHECKING:
    from rljob.core.observed import Manifest

STARTING = "Starting"


def current(status: Mapping[str, Any], now: datetime) -> str:
    """Return the message of a status, with the seconds until now if it is about the stage of a start."""
    about = status.get("reason") == Reason.SUBMITTED
    return (_live(status, now) if about else "") or str(status.get("message") or "")


def words(status: Mapping[str, Any]) -> str:
    """Return the stage that a run reports, without its seconds, which change all the time; empty without one."""
    start = status.get("start") or {}
    return start_message.words(str(start.get("stage")), str(start.get("detail") or "")) if _reported(start) else ""


def stage(status: Mapping[str, Any], now: datetime) -> str:
    """Return what a starting job does; empty if its status does not say."""
    return _live(status, now) if status.get("state") == STARTING else ""


def with_current(job: Manifest, now: datetime) -> dict[str, Any]:
    """Return a job whose messages have the seconds until now."""
    status = job.get("status") or {}
    changed = {**status}
    if status.get("message"):
        changed["message"] = current(status, now)
    if (live := _live(status, now)) and status.get("conditions"):
        changed["conditions"] = [
            {**entry, "message": live} if entry.get("reason") == Reason.SUBMITTED else entry
            for entry in status["conditions"]
        ]
    return {**job, "status": changed}


def _live(status: Mapping[str, Any], now: datetime) -> str:
    if not (said := words(status)):
        return ""
    start = status["start"]
    # A clock of the reader that is behind makes no stage shorter.
    return start_message.live(said, times.from_text(start["since"]), max(now, times.from_text(start["observedTime"])))


def _reported(start: Mapping[str, Any]) -> bool:
    return bool(start.get("observedTime"))
