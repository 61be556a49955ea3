"""Repeatable jitter: it spreads what many jobs would do at once, and depends on a text alone."""

from __future__ import annotations

import hashlib


def fraction(seed: str) -> float:
    """Return a number in [0, 1), the same for the same seed."""
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") / 2**32


def jittered(seconds: float, seed: str, share: float) -> float:
    """Return `seconds` lengthened by up to `share` of themselves."""
    return seconds * (1 + share * fraction(seed))
