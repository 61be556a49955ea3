"""Where the tables of upstream's names are, and the form in which they are written.

A table is JSON with a line for each list of names: words between spaces, so that a name that moves is one word of a
diff. The readers are `verl_names`, `megatron_names` and `ascend_names` of rljob_runtime.planning.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

TABLES = Path(__file__).resolve().parents[1] / "runtime/src/rljob_runtime/planning/tables"


def table_text(table: Mapping[str, object]) -> str:
    """Return a table as its file has it."""
    return json.dumps({name: _joined(value) for name, value in table.items()}, indent=1, ensure_ascii=False) + "\n"


def write_table(name: str, table: Mapping[str, object]) -> None:
    """Write a table."""
    path = TABLES / name
    path.write_text(table_text(table))
    print(f"wrote {path.name}, {path.stat().st_size} bytes")


def _joined(value: object) -> object:
    """Return a value whose lists of words are single texts. Raise ValueError for a word with a space."""
    if isinstance(value, Mapping):
        return {key: _joined(member) for key, member in value.items()}
    if isinstance(value, list) and all(isinstance(word, str) for word in value):
        if spaced := [word for word in value if " " in word]:
            raise ValueError(f"{spaced[0]!r} has a space, and words are separated by spaces")
        return " ".join(value)
    if isinstance(value, list):
        return [_joined(member) for member in value]
    return value
