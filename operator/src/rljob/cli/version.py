"""`rljob --version`: the release of the operator, its API, and the stack that it was made for."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version

from rljob.api.group import API_VERSION
from rljob.cli.status import table

DISTRIBUTION = "rljob"


def version_page(stack: Mapping[str, str]) -> str:
    """Return one line per component."""
    return table(list(versions(stack).items()))


def versions(stack: Mapping[str, str]) -> dict[str, str]:
    """Return the version of each component."""
    return {DISTRIBUTION: own_version(), "API": API_VERSION, **stack}


def own_version(distribution: str = DISTRIBUTION) -> str:
    """Return the version of the installed package."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return "not installed as a package"
