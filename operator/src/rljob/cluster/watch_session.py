"""The connections of kopf: those that it would make itself, but what they receive is read with bounds.

kopf parses every page and every line of a watch whole, and keeps each object for seconds. It accepts a session of
aiohttp from outside (kopf.AiohttpSession, 1.45), whose responses are these; `__main__` makes it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from rljob.cluster.bounded import decode, reduced_line


class BoundedResponse(aiohttp.ClientResponse):
    """A response whose objects are reduced before kopf sees them."""

    async def start(self, connection: Any) -> BoundedResponse:  # noqa: ANN401 - aiohttp's internal type
        """Read the headers, and make the content one of bounded lines."""
        await super().start(connection)
        self.content = BoundedLines(self.content)  # type: ignore[assignment] # it delegates all but iter_chunked
        return self

    async def json(self, **_: Any) -> Any:  # noqa: ANN401 - JSON
        """Return a page of a LIST, or another answer."""
        return decode((await self.read()).decode())


class BoundedLines:
    """The content of a watch: iterating over it gives whole lines."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - of the content
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield the lines, each reduced; kopf splits what it receives at their ends."""
        parts: list[bytes] = []
        async for data in self._content.iter_chunked(size):
            *lines, rest = data.split(b"\n")
            for line in lines:
                yield reduced_line(b"".join((*parts, line))) + b"\n"
                parts.clear()
            if rest:
                parts.append(rest)
        if parts:
            yield reduced_line(b"".join(parts))
