"""The accelerator classes that a command knows: the built-in ones, and those of the files of --accelerators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rljob.cli.errors import UsageError
from rljob.control import accelerator_files
from rljob.render.accelerator_table import AcceleratorTable
from rljob.render.accelerators import BUILT_IN


def accelerator_table(paths: Sequence[Path]) -> AcceleratorTable:
    """Return the built-in table with the rows of these files merged over it."""
    try:
        return accelerator_files.read_files(list(paths)) if paths else BUILT_IN
    except accelerator_files.AcceleratorsError as error:
        raise UsageError(str(error)) from error
