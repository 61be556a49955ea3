"""Probes and metrics over HTTP."""

from __future__ import annotations

import aiohttp

from rljob.telemetry.health import HealthServer
from rljob.telemetry.metrics import Metrics


async def ask(server: HealthServer, path: str) -> tuple[int, str]:
    url = f"http://127.0.0.1:{server.port}{path}"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        return answer.status, await answer.text()


async def test_probes_answer_with_the_reason() -> None:
    wrong: dict[str, str | None] = {"live": None, "ready": "standby"}
    server = HealthServer(0, lambda: wrong["live"], lambda: wrong["ready"], Metrics(), host="127.0.0.1")
    async with server:
        assert await ask(server, "/healthz") == (200, "ok\n")
        assert await ask(server, "/readyz") == (503, "standby\n")
        wrong.update(live="the last resync is old", ready=None)
        assert await ask(server, "/healthz") == (503, "the last resync is old\n")
        assert await ask(server, "/readyz") == (200, "ok\n")


async def test_metrics_are_served_under_our_prefix() -> None:
    async with HealthServer(0, lambda: None, lambda: None, Metrics(), host="127.0.0.1") as server:
        status, text = await ask(server, "/metrics")
    assert status == 200
    names = {line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE")}
    assert names
    assert all(name.startswith("rljob_operator_") for name in names)
    assert {"rljob_operator_leader", "rljob_operator_queue_depth", "rljob_operator_build_info"} <= names
