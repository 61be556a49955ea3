"""Create docs/images/report.png, the picture in the README, from the report of the recorded run.

`PYTHONPATH=operator/tests python -m tests.report`

The picture names the plots that it was made of by a digest, so that a test finds one that is older than the report.
"""

from __future__ import annotations

import hashlib
import struct
import tempfile
import zlib
from datetime import UTC, datetime
from pathlib import Path

import recorded

from rljob.cli.report.page import page
from tests.report import browser

PICTURE = Path(__file__).resolve().parents[2] / "docs" / "images" / "report.png"
SIZE = (1280, 950)
KEYWORD = b"rljob-report\0"
HEADER_BYTES = 33
"""Signature and first chunk of a PNG (https://www.w3.org/TR/png-3/, 5.2 and 11.2.1)."""


def text() -> str:
    """Return the report of the recorded run, as of a fixed time."""
    return page(recorded.run(), datetime.fromtimestamp(recorded.NOW, UTC))


def digest() -> bytes:
    """Return what names the part of today's report that the picture shows: head and plots, without the tables below."""
    return hashlib.sha256(text().partition("<section")[0].encode()).hexdigest()[:16].encode()


def drawn_from(picture: Path) -> bytes:
    """Return the digest of the report that a picture was made of."""
    return picture.read_bytes().partition(KEYWORD)[2][:16]


def main() -> None:
    """Write the picture."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(text())
        browser.picture(file, PICTURE, SIZE)
    data, named = PICTURE.read_bytes(), b"tEXt" + KEYWORD + digest()
    chunk = struct.pack(">I", len(named) - 4) + named + struct.pack(">I", zlib.crc32(named))
    PICTURE.write_bytes(data[:HEADER_BYTES] + chunk + data[HEADER_BYTES:])


if __name__ == "__main__":
    main()
