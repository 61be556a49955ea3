"""A number that depends on a text alone: it spreads what many jobs would do at once, and a run can be repeated."""

from __future__ import annotations

import hashlib


def fraction(text: str) -> float:
    """Give a number in [0, 1)."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32
