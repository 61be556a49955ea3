"""The exceptions of the command line, which are printed without a traceback; each has its exit code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar

from rljob.cli.exits import Exit
from rljob.reading import UnreadableError


class UsageError(Exception):
    """The file, the cluster or the command cannot be used; the message says what to do."""

    code: ClassVar[Exit] = Exit.USAGE


@contextmanager
def as_usage_error() -> Iterator[None]:
    """Raise UsageError where what was read cannot be used."""
    try:
        yield
    except UnreadableError as error:
        raise UsageError(str(error)) from error
