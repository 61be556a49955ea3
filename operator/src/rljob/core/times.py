"""Times in the status: RFC 3339, UTC, whole seconds. `now` always comes in from outside."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


def to_text(moment: datetime) -> str:
    """Give the text of a moment."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def from_text(text: str) -> datetime:
    """Read a moment."""
    return datetime.fromisoformat(text)


def from_unix(seconds: float) -> datetime:
    """Read a moment given in seconds since 1970."""
    return datetime.fromtimestamp(seconds, tz=UTC)


def after(text: str, seconds: float) -> datetime:
    """Give the moment so many seconds after a text."""
    return from_text(text) + timedelta(seconds=seconds)
