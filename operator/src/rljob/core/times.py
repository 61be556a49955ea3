"""Times in the status: RFC 3339, UTC, whole seconds. `now` always comes in from outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def to_text(moment: datetime) -> str:
    """Return the text of a time."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_text(text: str) -> datetime:
    """Parse a time."""
    return datetime.fromisoformat(text)


def from_unix(seconds: float) -> datetime:
    """Return the time of a Unix timestamp."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def after(text: str, seconds: float) -> datetime:
    """Return the time `seconds` after a text."""
    return from_text(text) + timedelta(seconds=seconds)
