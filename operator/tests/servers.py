"""A small HTTP server with configurable answers, on a free port of this machine."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Self

from aiohttp import web

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Server:
    """Answers every request with `answer`, and records the requests."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.asked: list[tuple[str, str, dict[str, str], Any]] = []
        """Method, path with query, headers and JSON body."""

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", self._handle)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        return int(self._runner.addresses[0][1])

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.asked.append((request.method, request.path_qs, dict(request.headers), body))
        return await self.answer(request)


def says(status: int, body: object = None, **headers: str) -> Answer:
    """Answer every request with the same JSON."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response(body, status=status, headers=headers)

    return answer


def says_text(status: int, text: str, **headers: str) -> Answer:
    """Answer every request with the same text."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=text, status=status, headers=headers)

    return answer
