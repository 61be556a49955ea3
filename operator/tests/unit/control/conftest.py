"""What the tests of the machinery share."""

from __future__ import annotations

import pytest
from hypothesis import settings
from machine import Machine

# A busy machine is no reason to fail: timings are never a verdict.
settings.register_profile("rljob", deadline=None)
settings.load_profile("rljob")


@pytest.fixture
def machine() -> Machine:
    """Give the machinery over an empty world."""
    return Machine()
