"""The HTTP server of the operator process: liveness, readiness and metrics on one port.

`/healthz` fails when a part of the process is stuck: a blocked event loop does not answer at all, and a store that has
not been compared with the API server for two intervals is not reliable. `/readyz` fails on a standby, which is alive
but does not lead. Both answer with a human-readable reason.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from aiohttp import web

if TYPE_CHECKING:
    from rljob.telemetry.metrics import Metrics

Check = Callable[[], str | None]
"""Function that returns what is wrong, or None."""


class HealthServer:
    """Serves within the context: `async with HealthServer(…):`."""

    def __init__(self, port: int, live: Check, ready: Check, metrics: Metrics, host: str | None = None) -> None:
        self._port = port
        self._host = host
        self._live = live
        self._ready = ready
        self._metrics = metrics
        app = web.Application()
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._exposition)
        self._runner = web.AppRunner(app, access_log=None)

    async def __aenter__(self) -> Self:
        """Start listening."""
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, self._port).start()
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        await self._runner.cleanup()

    @property
    def port(self) -> int:
        """The port in use; useful if 0 was requested."""
        return int(self._runner.addresses[0][1])

    async def _healthz(self, _: web.Request) -> web.Response:
        return _answer(self._live())

    async def _readyz(self, _: web.Request) -> web.Response:
        return _answer(self._ready())

    async def _exposition(self, _: web.Request) -> web.Response:
        return web.Response(body=self._metrics.exposition(), headers={"Content-Type": "text/plain; version=0.0.4"})


def _answer(wrong: str | None) -> web.Response:
    return web.Response(text="ok\n") if wrong is None else web.Response(text=f"{wrong}\n", status=503)
