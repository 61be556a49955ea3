"""Versions: what pip and go print about them, and which is the newest of a line. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from packaging.version import InvalidVersion, Version

AVAILABLE = re.compile(r"^Available versions: (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Answer:
    """The newest releases of one upstream, as far as they could be asked."""

    in_line: str | None = None
    """Newest final release with the pin's major and minor number."""
    overall: str | None = None
    """Newest final release."""
    problem: str = ""
    """Why it could not be asked."""


def versions_of_pip(text: str) -> list[str]:
    """Return the versions that `pip index versions NAME` printed."""
    found = AVAILABLE.search(text)
    return found[1].split(", ") if found else []


def versions_of_go(text: str) -> list[str]:
    """Return the versions that `go list -m -versions MODULE` printed: the module, then its versions."""
    return text.split()[1:]


def newest(pin: str, versions: Iterable[str]) -> Answer:
    """Return the newest releases, pre-releases left out. The pin counts as one: an index may list only a part."""
    final = [
        version for version in map(_version, (pin, *versions)) if version is not None and not version.is_prerelease
    ]
    line = _version(pin)
    if line is None:
        return Answer(problem=f"{pin} is not a version")
    return Answer(_text(max(v for v in final if v.release[:2] == line.release[:2]), pin), _text(max(final), pin))


def _version(text: str) -> Version | None:
    """Return a version; an epoch and Go's `v` are accepted."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def _text(version: Version, pin: str) -> str:
    return f"v{version}" if pin.startswith("v") else str(version)
