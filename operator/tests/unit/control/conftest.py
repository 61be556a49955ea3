"""Fixtures of the tests of the control loop."""

from __future__ import annotations

import pytest
from hypothesis import settings
from machine import Machine

# Disabled deadlines, because a busy machine must not fail a test.
settings.register_profile("rljob", deadline=None)
settings.load_profile("rljob")


@pytest.fixture
def machine() -> Machine:
    """Return the control loop in an empty world."""
    return Machine()
