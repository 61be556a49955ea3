"""How large an object of the API may be."""

from __future__ import annotations

from typing import Final

SPEC_BYTES_MAX: Final = 256 * 1024
"""Bytes of the spec of a job or recipe as JSON in UTF-8. A rule in the CRDs holds each object to it (`api.sizes`), and
the core a job together with its recipes."""
STATUS_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a status, by the bounds of its fields. Only the operator writes it, and cuts its messages to 2000 bytes."""
SPEC_TOO_LARGE: Final = "specBytes"
"""Takes the place of a spec that is too large to keep: its size, which `core.validation.sizes` refuses. No field of the
API has this name."""
OVER_BUDGET: Final = "operatorMemory"
"""Takes the place of a spec for which the namespace has no memory of the operator left: why, which
`core.validation.sizes` says. No field of the API has this name."""
