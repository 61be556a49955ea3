"""The name that a misspelt one most likely stands for. A suggestion must not change what the user asked for."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

COMPARED = 200
"""Characters of a name that are compared: the comparison takes quadratic time."""
BEGINNING = 3
"""Characters of a name from which its beginning alone identifies it."""
_PUNCTUATION = re.compile(r"[^a-z0-9]")
_DIGITS = re.compile(r"\D")
_RELEASE = re.compile(r"(-(instruct|base|chat|it|thinking|hf|bf16|\d{4})){1,8}$")
"""What the names of weights append to that of their architecture."""


def nearest_field(name: str, known: Iterable[str]) -> str | None:
    """Return the field that begins with a name, else the most similar one; None where none is similar.

    Case and punctuation do not count, so that `micro_batch_size` stands for microBatchSizePerDevice.
    """
    plain = _plain(name)
    fields = {_plain(field): field for field in known}
    begun = [field for field in fields if field.startswith(plain)] if len(plain) >= BEGINNING else []
    found = [min(begun, key=len)] if begun else difflib.get_close_matches(plain, list(fields), n=1)
    return fields[found[0]] if found else None


def nearest_model(name: str, known: Iterable[str]) -> str | None:
    """Return the model that a name stands for: without its owner, its case, and a suffix such as -Instruct.

    A model with other numbers in its name has other sizes and is never the answer; the end of the name may be missing.
    """
    models = {model.lower(): model for model in known}
    wanted = _RELEASE.sub("", name[:COMPARED].lower().rpartition("/")[2])
    if wanted in models:
        return models[wanted]
    if len(begun := [model for model in models if model.startswith(f"{wanted}-")]) == 1:
        return models[begun[0]]
    alike = [model for model in models if _DIGITS.sub("", model) == _DIGITS.sub("", wanted)]
    found = difflib.get_close_matches(wanted, alike, n=1)
    return models[found[0]] if found else None


def _plain(name: str) -> str:
    return _PUNCTUATION.sub("", name[:COMPARED].lower())
