"""One replica of two data-parallel ranks: a request goes to the rank on which a response has just ended."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.long


def test_a_request_goes_to_the_rank_with_room(run: Any, models: Path) -> None:
    """By vLLM's own choice they alternate, and three of the ten short ones end before a long one does."""
    found = json.loads(run("data_parallel_process.py", str(models / "dense/model")).splitlines()[-1])
    assert found["ranks"] == [0, 1, 0, 1, *[1] * 8]
    assert found["before"] == 10
