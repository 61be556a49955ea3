"""What released verl's configuration knows: tables/verl.json, which upstream/verl_names.py writes from the wheel."""

from __future__ import annotations

from collections.abc import Mapping

from rljob_runtime.planning.tables import read_table

_TABLE = read_table("verl.json")
VERL_VERSION: str = _TABLE["version"]
KEYS: Mapping[str, Mapping[str, str]] = _TABLE["keys"]
"""COMMON, and the engines DP and MEGATRON -> section -> its keys between spaces.

`name=value` is a key with its default as JSON, a name without a value is a section of its own.
"""
FIELDS: Mapping[str, str] = _TABLE["fields"]
"""Dataclass into which a section is converted -> its fields."""
READ: str = _TABLE["read"]
"""Names that are looked up in any section and that the composed configuration lacks."""
