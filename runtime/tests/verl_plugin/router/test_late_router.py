"""The router that holds requests back, in an event loop as in its actor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from rljob_runtime.verl_plugin.router import late_binding, late_router
from rljob_runtime.verl_plugin.router.late_binding import Limits, Placed
from rljob_runtime.verl_plugin.router.late_router import NOWHERE, LateBindingRouter
from rljob_runtime.verl_plugin.router.replica_times import from_plain

SECONDS = 10.0


class Router(LateBindingRouter):
    limits = Limits(sequences=1, engines=1, requests=50)


def in_loop(check: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(check(), SECONDS)

    asyncio.run(bounded())


async def ask(router: Router, *names: str) -> dict[str, asyncio.Task[tuple[str, Any]]]:
    """Send requests, and wait until those that are not only the first of their group are placed."""
    asked = {name: asyncio.create_task(router.acquire_server(name, name[0])) for name in names}
    await asyncio.sleep(2 * late_binding.SETTLE_SECONDS)
    return asked


def test_a_request_waits_until_a_replica_has_answered() -> None:
    async def check() -> None:
        router = Router({"a": "handle-a"})
        asked = await ask(router, "x0", "x1", "x2")
        assert [name for name, task in asked.items() if task.done()] == ["x0", "x1"]
        assert asked["x0"].result() == ("a", "handle-a")
        assert await router.get_total_inflight() == 3
        await router.release_server("a", "x0", 5)
        assert await router.get_status() == {
            "servers": {"a": 1},
            "total_inflight": 2,
            "active_servers": 1,
            "registered_handles": ["a"],
            "waiting": 1,
        }
        await router.release_server("a", "x1", 5)
        assert await asked["x2"] == ("a", "handle-a")

    in_loop(check)


class Descheduled(late_binding.LateBinding):
    """Of a process that does not run for a while after each decision."""

    def placed(self) -> list[Placed]:
        found = super().placed()
        time.sleep(2 * late_binding.SETTLE_SECONDS)
        return found


def test_requests_are_placed_however_late_the_process_looks_at_the_clock() -> None:
    async def check() -> None:
        router = Router({"a": "handle-a"})
        router._requests = Descheduled(["a"], Router.limits, time.monotonic)
        asked = await ask(router, "x0", "x1", "x2")
        assert await asyncio.wait_for(asked["x1"], SECONDS / 2) == ("a", "handle-a")

    in_loop(check)


def test_times_count_from_the_moment_at_which_a_replica_gets_a_request() -> None:
    async def check() -> None:
        router = Router({"a": 1, "b": 2})
        await ask(router, "x0", "x1", "x2", "x3", "x4")
        window = from_plain(await router.take_window())
        assert sum(times.requests for times in window.replicas.values()) == 5 - router._requests.waiting
        await router.release_server("nobody", "x9", 1)
        assert all(times.last_release is None for times in window.replicas.values())

    in_loop(check)


def test_a_response_that_was_never_asked_for_is_not_timed() -> None:
    async def check() -> None:
        router = Router({"a": 1})
        await ask(router, "x0")
        await router.release_server("a", "unknown", 1)
        assert from_plain(await router.take_window()).replicas["a"].last_release is None
        assert await router.get_inflight_count("a") == 1

    in_loop(check)


def test_an_abandoned_rollout_ends_what_waits_and_the_next_is_not_affected() -> None:
    async def check() -> None:
        router = Router({"a": 1})
        asked = await ask(router, "x0", "x1", "x2", "x3", "x4")
        waiting = [task for task in asked.values() if not task.done()]
        assert await router.end_waiting() == len(waiting) == 2
        assert [await task for task in waiting] == [(NOWHERE, None)] * 2
        assert await router.acquire_server("late0", "l") == (NOWHERE, None)
        for name in ("x0", "x1", "x2"):
            await router.release_server("a", name, None)
        await router.take_window()
        assert await router.acquire_server("y0", "y") == ("a", 1)
        assert await router.get_total_inflight() == 1

    in_loop(check)


def test_replicas_come_and_go() -> None:
    async def check() -> None:
        router = Router({"a": 1})
        asked = await ask(router, "x0", "x1", "x2", "x3", "x4")
        await router.add_servers({"b": 2})
        assert await asked["x3"] == ("b", 2)
        assert await router.get_all_servers() == ["a", "b"]
        await router.remove_servers(["a"])
        await router.release_server("a", "x0", 1)
        assert await router.get_inflight_count("a") == 0
        assert set(from_plain(await router.take_window()).replicas) == {"b"}
        await router.remove_servers(["b"])
        ends = await asyncio.gather(*asked.values(), return_exceptions=True)
        assert [type(end) for end in ends] == [tuple] * 4 + [RuntimeError], "the last one still waited"
        with pytest.raises(RuntimeError, match="No available servers"):
            await router.acquire_server("y0", "y")

    in_loop(check)


def test_a_later_turn_returns_to_its_replica_until_that_is_forgotten() -> None:
    async def check() -> None:
        router = Router({"a": 1, "b": 2})
        first, _ = await router.acquire_server("x0", "x")
        await router.release_server(first, "x0", 3)
        other = next(iter({"a", "b"} - {first}))
        await ask(router, "y0")
        assert (await router.acquire_server("x0", "x"))[0] == first
        assert await router.clear_sticky_cache() == {"cleared_entries": 2, "server_loads": router._requests.load}
        assert other in router._requests.load

    in_loop(check)


def test_the_limits_come_from_the_configuration() -> None:
    rollout = {"max_num_seqs": 256, "data_parallel_size": 32}
    assert late_router.limits_of(rollout, 8_704) == Limits(256, 32, 8_704)
    assert late_router.limits_of({**rollout, "engine_kwargs": {"vllm": None}}, 1) == Limits(256, 32, 1)
    given = {"vllm": {"max_num_seqs": 8}}
    assert late_router.limits_of({**rollout, "engine_kwargs": given}, 1) == Limits(8, 32, 1)


def test_what_verls_client_passes_beside_the_id() -> None:
    async def check() -> None:
        router = Router({})
        assert await router.require_acquire_fields() == []
        assert await router.require_release_fields() == ["request_id"]

    in_loop(check)


def test_a_replica_whose_responses_fail_does_not_attract_all_that_wait(capsys: pytest.CaptureFixture[str]) -> None:
    async def check() -> None:
        router = Router({"bad": 1, "good": 2})
        asked = await ask(router, *(f"{letter}{number}" for letter in "abcdefgh" for number in range(5)))
        failed = 0
        for _ in range(len(asked)):
            await asyncio.sleep(0)
            name = next((n for n, task in asked.items() if task.done() and task.result()[0] == "bad"), None)
            if name is None:
                break
            del asked[name]
            failed += 1
            await router.release_server("bad", name, failed=True)
        assert failed <= late_router.FAILURES_MAX + 2
        assert await router.get_all_servers() == ["good"]
        # The last one stays, so that its error ends the requests.
        for number in range(2 * late_router.FAILURES_MAX):
            await router.release_server("good", f"z{number}", failed=True)
        assert await router.get_all_servers() == ["good"]

    in_loop(check)
    assert "rljob: replica bad gets no more requests: 8 in a row failed" in capsys.readouterr().out


def test_a_success_between_failures_keeps_a_replica() -> None:
    async def check() -> None:
        router = Router({"a": 1, "b": 2})
        for number in range(4 * late_router.FAILURES_MAX):
            await router.release_server("a", f"x{number}", failed=bool(number % 4))
        assert sorted(await router.get_all_servers()) == ["a", "b"]

    in_loop(check)
