"""Split what a command writes into lines, and follow a file to which it appends, both with bounded memory."""

from __future__ import annotations

import os
import stat
from pathlib import Path

LINE_BYTES = 256 * 1024
"""The rest of a longer line is dropped. progress.py cuts further, by characters."""
POLL_BYTES = 4 << 20
"""How much of a file one poll reads."""
SEEN_BYTES = 64
"""Bytes before the place of reading that show whether the file still has what was read."""


class Lines:
    """Splits chunks of bytes into lines. A carriage return ends a line too, as progress bars use it."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, chunk: bytes) -> list[str]:
        """Return the lines that are complete, without empty ones."""
        *ended, rest = chunk.replace(b"\r", b"\n").split(b"\n")
        lines = []
        for part in ended:
            self._add(part)
            lines.append(self.rest())
        self._add(rest)
        return [line for line in lines if line]

    def rest(self) -> str:
        """Return the last line, which has no end, and forget it."""
        line = self._rest.decode(errors="replace")
        self._rest.clear()
        return line

    def _add(self, part: bytes) -> None:
        self._rest += part[: LINE_BYTES - len(self._rest)]


class FileTail:
    """New lines of a file that may appear later, be truncated, or be replaced.

    What the file contains when it is opened first was written by an earlier attempt and is skipped.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lines = Lines()
        self._inode: int | None = None
        self.offset = 0
        """Number of bytes that were read or skipped."""
        self._seen = b""
        """The last bytes before the offset."""
        self._skip_existing()

    def poll(self) -> list[str]:
        """Return the complete lines since the last poll, at most `POLL_BYTES` of them.

        A file that cannot be read has no new lines: it may be readable at the next poll.
        """
        try:
            chunk = self._read()
        except OSError:
            return []
        return self._lines.feed(chunk)  # `_read` replaces the lines of a file that begins again

    def rest(self) -> str:
        """Return what the command wrote after its last line feed, once it has ended."""
        return self._lines.rest()

    def _skip_existing(self) -> None:
        try:
            file = open_regular(self._path)
        except OSError:
            return
        try:
            found = os.fstat(file)
            self._inode, self.offset = found.st_ino, found.st_size
            self._seen = self._before(file)
        except OSError:
            return
        finally:
            os.close(file)

    def _read(self) -> bytes:
        file = open_regular(self._path)
        try:
            found = os.fstat(file)
            if found.st_ino != self._inode or found.st_size < self.offset or self._before(file) != self._seen:
                self._inode, self.offset, self._seen, self._lines = found.st_ino, 0, b"", Lines()
            chunk = os.pread(file, POLL_BYTES, self.offset)
            self.offset += len(chunk)
            self._seen = (self._seen + chunk)[-SEEN_BYTES:]
            return chunk
        finally:
            os.close(file)

    def _before(self, file: int) -> bytes:
        begin = max(0, self.offset - SEEN_BYTES)
        return os.pread(file, self.offset - begin, begin)


def open_regular(path: Path) -> int:
    """Open a file for reading. Raises OSError if it is not a regular one: opening a named pipe would otherwise wait."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if stat.S_ISREG(os.fstat(file).st_mode):
        return file
    os.close(file)
    raise OSError(f"{path} is not a regular file")
