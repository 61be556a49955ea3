"""Reads tables of accelerator classes from files: those that the chart mounts, or that a user passes to `rljob`.

Each is merged over the built-in table in the order of the file names. The operator does not start with an invalid table
and reports every wrong field with its fix: a job must not be judged by half a table.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from rljob.render.accelerator_table import AcceleratorTable, TableError, read_table
from rljob.render.accelerators import built_in_document

SUFFIXES = (".yaml", ".yml")
VALUE = "accelerators"
"""The chart's value with a table."""
SIZE_MAX = 1 << 20
"""Bytes of a file: MaxSecretSize of pkg/apis/core/types.go (v1.36), which bounds ConfigMaps too."""


class AcceleratorsError(ValueError):
    """A table is invalid; the message has one line per problem."""


def read_folder(folder: Path) -> AcceleratorTable:
    """Read every table of a folder; raise AcceleratorsError if one is invalid."""
    return read_files(sorted(path for path in folder.glob("*") if path.suffix in SUFFIXES))


def read_files(paths: Iterable[Path]) -> AcceleratorTable:
    """Read tables, merged in this order; raise AcceleratorsError if one is invalid."""
    listed = list(paths)
    layers = [built_in_document(), *(layer for path in listed for layer in _layers(path))]
    try:
        return AcceleratorTable(read_table(*layers))
    except TableError as error:
        names = ", ".join(path.name for path in listed)
        raise AcceleratorsError("\n".join(f"{names}: {problem}" for problem in error.problems)) from error


def _text(path: Path) -> str:
    with path.open("rb") as file:
        text = file.read(SIZE_MAX + 1)
    if len(text) > SIZE_MAX:
        raise AcceleratorsError(f"{path}: larger than {SIZE_MAX >> 20} MiB, which is the maximum of a ConfigMap")
    return text.decode("utf-8")


def _is_values(document: Mapping[str, Any]) -> bool:
    """Return whether a file has the chart's values, of which one is the table. A row of that name has no maps only."""
    table = document.get(VALUE)
    return isinstance(table, Mapping) and bool(table) and all(isinstance(row, Mapping) for row in table.values())


def _layers(path: Path) -> list[Mapping[str, Any]]:
    try:
        document = yaml.safe_load(_text(path))
        if isinstance(document, Mapping) and document.get("kind") == "ConfigMap":
            data = document.get("data") or {}
            if not isinstance(data, Mapping):
                raise AcceleratorsError(f"{path}: data of the ConfigMap must be a map of file names to tables")
            documents = [yaml.safe_load(str(text)) for _, text in sorted(data.items())]
        elif isinstance(document, Mapping) and _is_values(document):
            documents = [document[VALUE]]
        else:
            documents = [document]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise AcceleratorsError(f"{path}: cannot be read: {error}") from error
    except RecursionError as error:
        raise AcceleratorsError(f"{path}: nested too deeply for a table of classes") from error
    found = [each for each in documents if each is not None]
    if not all(isinstance(each, Mapping) for each in found):
        raise AcceleratorsError(f"{path}: must be a map of classes to their rows, such as atlas-a2: {{...}}")
    return found
