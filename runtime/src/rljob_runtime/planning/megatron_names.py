"""Names that Megatron and MindSpeed read, by file: tables/megatron.json, which upstream/megatron_names.py writes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rljob_runtime.planning.tables import read_table


@dataclass(frozen=True)
class Source:
    """A pinned commit of one repository."""

    repository: str
    branch: str
    commit: str
    names: Mapping[str, str]
    """File -> the names in it, separated by spaces."""


SOURCES = tuple(Source(**row) for row in read_table("megatron.json")["sources"])
