"""Text that every output can encode and that controls no terminal."""

from __future__ import annotations

import re

KEPT = "\n\t"
CONTROL = (*range(0x20), *range(0x7F, 0xA0))
"""C0, DEL and C1: ESC begins a control sequence, and so does 0x9b (ECMA-48, 5.3 and 5.4)."""
DIRECTION = (0x061C, 0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Line and paragraph separators, and characters that reorder what follows (Unicode Standard Annex 9, 2)."""
_SHOWN = {code: f"\\u{code:04x}" for code in (*CONTROL, *DIRECTION) if chr(code) not in KEPT}
_COLOUR = re.compile(r"\x1b\[[0-9;]{0,32}m")
"""ECMA-48, 8.3.117 (SGR)."""
_SHOWN_IN_LINE = _SHOWN | {ord(character): f"\\u{ord(character):04x}" for character in KEPT}


def encodable(text: str) -> str:
    """Return a text with question marks in place of unpaired surrogates, which UTF-8 cannot encode.

    Escapes in JSON can spell them, and logs contain them.
    """
    return text.encode("utf-8", "replace").decode()


def without_colours(text: str) -> str:
    """Return a program's output without its colours, and with lines in place of those that it wrote over each other."""
    return _COLOUR.sub("", text).replace("\r\n", "\n").replace("\r", "\n")


def printable(text: str) -> str:
    """Return text whose control characters, except line feed and tab, are written as escapes of JSON.

    The author of the text could otherwise control the terminal on which it is read, or reorder what is seen there.
    """
    return text.translate(_SHOWN)


def one_line(text: str) -> str:
    """Return text for a cell or a line, without any control character: one value cannot look like two rows."""
    return text.translate(_SHOWN_IN_LINE)
