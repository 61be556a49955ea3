"""Names in released projects, as data of the package; the readers are beside it, and read each table once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_table(name: str) -> dict[str, Any]:
    """Return a table of this folder."""
    table: dict[str, Any] = json.loads((Path(__file__).parent / name).read_text(encoding="utf-8"))
    return table
