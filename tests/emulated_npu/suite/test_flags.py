"""Settings of the transformer that recipes and the sources' scripts have: what became of each is in flags.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROWS = Path(__file__).with_name("flags.json")


@pytest.mark.long
@pytest.mark.usefixtures("mindspeed")
def test_each_start_ends_as_recorded(run: Any, models: Path, tmp_path: Path) -> None:
    """docs/reference/recipe-flags.md shows the record, and RLJob refuses what does not train."""
    results = tmp_path / "results.json"
    run("flags_process.py", str(models), str(ROWS), str(results))
    rows = json.loads(ROWS.read_text())
    assert json.loads(results.read_text()) == [row["found"] for row in rows]
