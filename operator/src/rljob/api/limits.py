"""How large an object of the API may be."""

from __future__ import annotations

from typing import Final

SPEC_BYTES_MAX: Final = 256 * 1024
"""Bytes of the spec of a job or recipe as JSON in UTF-8. A rule in the CRDs holds each object to it (`api.sizes`), and
the core a job together with its recipes."""
