"""One HTTP/1.1 request to a head pod, read as a hostile server would have it read: every part has a bound.

A general client parses whatever comes, such as a million interim responses in the two seconds that a request may take,
and the event loop with it. This one takes a single response with one bounded header and a bounded body, parses nothing
twice, and closes the connection. `ray.py` bounds the time.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HEADER_BYTES = 8 * 1024
"""Most bytes of the status line and headers: Ray and our exporter send less than one kilobyte."""
CHUNKS_MAX = 4096
"""Parts of a body in chunked encoding; each costs a few microseconds."""
PIECE_BYTES = 64 * 1024
USER_AGENT = "rljob-operator"
"""Earlier versions of Ray fail on a request without one; 2.60 does not (dashboard/optional_utils.py:144)."""
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]{0,200})?")
_LENGTH = re.compile(rb"[0-9]{1,15}")
_CHUNK = re.compile(rb"([0-9A-Fa-f]{1,12})(?:[ \t;][^\r\n]{0,200})?\r\n")


class ResponseError(Exception):
    """The answer is no HTTP response within the bounds."""


@dataclass(frozen=True)
class HeadRequest:
    """What to ask."""

    method: str
    host: str
    port: int
    path: str
    token: str | None
    body: dict[str, Any] | None = None

    def encode(self) -> bytes:
        """Return the bytes to send."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        body = b"" if self.body is None else json.dumps(self.body).encode()
        lines = [
            f"{self.method} {quote(self.path)} HTTP/1.1",
            f"Host: {host}:{self.port}",
            *([f"Authorization: Bearer {self.token}"] if self.token is not None else []),
            f"User-Agent: {USER_AGENT}",
            "Accept: application/json, text/plain",
            "Accept-Encoding: identity",
            "Connection: close",
            *(["Content-Type: application/json", f"Content-Length: {len(body)}"] if self.body is not None else []),
        ]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body


class Response:
    """One response, of which the body is still to be read."""

    def __init__(self, reader: asyncio.StreamReader, status: int, fields: dict[bytes, bytes]) -> None:
        self.status = status
        self._reader, self._fields = reader, fields

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces. Raises ResponseError if it is not what the headers say."""
        if self._fields.get(b"transfer-encoding", b"").lower() == b"chunked":
            async for piece in self._chunks():
                yield piece
            return
        length = self._fields.get(b"content-length")
        if length is not None and not _LENGTH.fullmatch(length):
            raise ResponseError("Content-Length is no number")
        left = None if length is None else int(length)
        while left != 0:
            piece = await self._reader.read(PIECE_BYTES if left is None else min(left, PIECE_BYTES))
            if not piece:
                if left is not None:
                    raise ResponseError("the answer ends early")
                return
            left = None if left is None else left - len(piece)
            yield piece

    async def _chunks(self) -> AsyncIterator[bytes]:
        for _ in range(CHUNKS_MAX):
            found = _CHUNK.fullmatch(await _until(self._reader, b"\r\n"))
            if found is None:
                raise ResponseError("a chunk has no size")
            left = int(found[1], 16)
            if left == 0:
                return
            while left:
                piece = await self._reader.read(min(left, PIECE_BYTES))
                if not piece:
                    raise ResponseError("the answer ends early")
                left -= len(piece)
                yield piece
            if await _until(self._reader, b"\r\n") != b"\r\n":
                raise ResponseError("a chunk is longer than its size")
        raise ResponseError(f"the answer has more than {CHUNKS_MAX} chunks")


class Connection:
    """A connection for one request: `async with Connection(request) as response`."""

    def __init__(self, request: HeadRequest) -> None:
        self._request = request
        self._writer: asyncio.StreamWriter | None = None

    async def __aenter__(self) -> Response:
        """Send the request and read the header of the response. Raises OSError and ResponseError."""
        reader, self._writer = await asyncio.open_connection(self._request.host, self._request.port, limit=HEADER_BYTES)
        try:
            self._writer.write(self._request.encode())
            return Response(reader, *_header(await _until(reader, b"\r\n\r\n")))
        except BaseException:
            self._writer.transport.abort()
            raise

    async def __aexit__(self, *_: object) -> None:
        """Close the connection; what the server still sends is not read."""
        if self._writer is not None:
            self._writer.transport.abort()


async def _until(reader: asyncio.StreamReader, end: bytes) -> bytes:
    try:
        return await reader.readuntil(end)
    except asyncio.IncompleteReadError as error:
        raise ResponseError("the answer ends early") from error
    except asyncio.LimitOverrunError as error:
        raise ResponseError(f"a header is longer than {HEADER_BYTES} bytes") from error


def _header(text: bytes) -> tuple[int, dict[bytes, bytes]]:
    first, *lines = text.removesuffix(b"\r\n\r\n").split(b"\r\n")
    found = _STATUS.fullmatch(first)
    if found is None:
        raise ResponseError("the answer is not HTTP/1")
    status, fields = int(found[1]), {}
    if status < 200:
        raise ResponseError(f"an interim response, {status}, although none was asked for")
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or not name.strip():
            raise ResponseError("a header is no header")
        fields[name.strip().lower()] = value.strip()
    return status, fields
