"""The exceptions of the command line, which are printed without a traceback; each has its exit code."""

from __future__ import annotations

from typing import ClassVar

from rljob.cli.exits import Exit


class UsageError(Exception):
    """The file, the cluster or the command cannot be used; the message says what to do."""

    code: ClassVar[Exit] = Exit.USAGE
