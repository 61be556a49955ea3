"""What kopf receives: whole lines and pages, with large objects reduced."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, web

from rljob.cluster.bounded import USUAL_BYTES
from rljob.cluster.watch_session import BoundedResponse

LARGE = {"kind": "RLJob", "metadata": {"name": "a", "managedFields": ["x" * USUAL_BYTES]}, "spec": {}}
SMALL = {"kind": "RLJob", "metadata": {"name": "a"}, "spec": {}}


@pytest.fixture
async def address() -> AsyncIterator[str]:
    """Return the address of a server with a page and a watch."""

    async def page(_: web.Request) -> web.Response:
        return web.json_response({"items": [LARGE, SMALL], "metadata": {}})

    async def watch(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        lines = b"".join(json.dumps({"type": "ADDED", "object": each}).encode() + b"\n" for each in (SMALL, LARGE))
        # A line that is received in parts, several lines at once, and a last one without an end.
        for part in (lines[:10], lines[10:], lines[:-1]):
            await answer.write(part)
        return answer

    app = web.Application()
    app.add_routes([web.get("/page", page), web.get("/watch", watch)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    host, port = runner.addresses[0][:2]
    yield f"http://{host}:{port}"
    await runner.cleanup()


async def test_a_page_is_reduced(address: str) -> None:
    async with ClientSession(response_class=BoundedResponse) as session, session.get(f"{address}/page") as answer:
        assert await answer.json() == {"items": [SMALL, SMALL], "metadata": {}}


async def test_the_lines_of_a_watch_are_reduced_and_stay_lines(address: str) -> None:
    async with ClientSession(response_class=BoundedResponse) as session, session.get(f"{address}/watch") as answer:
        assert answer.content.at_eof() in (True, False)
        received = b"".join([data async for data in answer.content.iter_chunked(1024)])
    assert [json.loads(line) for line in received.splitlines()] == [{"type": "ADDED", "object": SMALL}] * 4
