"""Kubernetes quantities."""

from __future__ import annotations

from fractions import Fraction

import pytest

from rljob.api.quantity import quantity

QUANTITIES = {
    "0": Fraction(0),
    "16": Fraction(16),
    "500m": Fraction(1, 2),
    "1.5": Fraction(3, 2),
    "2k": Fraction(2000),
    "12Gi": Fraction(12 * 2**30),
    "1E": Fraction(10**18),
    "1e3": Fraction(1000),
}


@pytest.mark.parametrize("text", QUANTITIES)
def test_a_quantity_is_read_in_its_unit(text: str) -> None:
    assert quantity(text) == QUANTITIES[text]
