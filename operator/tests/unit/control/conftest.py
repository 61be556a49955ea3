"""What the tests of the machinery share."""

from __future__ import annotations

import pytest
from machine import Machine


@pytest.fixture
def machine() -> Machine:
    """Give the machinery over an empty world."""
    return Machine()
