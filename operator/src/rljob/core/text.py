"""Text that every output can encode."""

from __future__ import annotations


def encodable(text: str) -> str:
    """Return a text with question marks in place of unpaired surrogates, which UTF-8 cannot encode.

    Escapes in JSON can spell them, and logs contain them.
    """
    return text.encode("utf-8", "replace").decode()
