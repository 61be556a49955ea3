"""The router of the rollout's requests: a known request to its replica, else the replica with the fewest."""

from __future__ import annotations

import pytest

from rljob_runtime.verl_plugin.router import router
from rljob_runtime.verl_plugin.router.router import TimedRouter


def test_requests_go_to_the_replica_with_the_fewest() -> None:
    made = TimedRouter({"a": 1, "b": 2})
    chosen = [made.acquire_server(str(number)) for number in range(4)]
    assert sorted(chosen) == [("a", 1), ("a", 1), ("b", 2), ("b", 2)]
    made.release_server("b", "x")
    assert made.acquire_server("later") == ("b", 2)
    assert made.get_total_inflight() == 4
    assert made.get_inflight_count("a") == made.get_inflight_count("b") == 2


def test_a_known_request_returns_to_its_replica_until_that_is_gone() -> None:
    made = TimedRouter({"a": 1, "b": 2})
    first, _ = made.acquire_server("one")
    assert made.acquire_server("one")[0] == first
    made.remove_servers([first])
    (other,) = made.get_all_servers()
    assert made.acquire_server("one")[0] == other
    made.release_server(first)
    made.add_servers({first: 3})
    assert made.acquire_server("two") == (first, 3)
    assert made.get_status() == {
        "servers": {other: 1, first: 1},
        "total_inflight": 2,
        "active_servers": 2,
        "registered_handles": [other, first],
    }


def test_the_oldest_request_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router, "STICKY_MAX", 2)
    made = TimedRouter({"a": 1})
    for request in ("one", "two", "one", "three"):
        made.acquire_server(request)
    assert made.clear_sticky_cache() == {"cleared_entries": 2, "server_loads": {"a": 4}}
    assert made.clear_sticky_cache()["cleared_entries"] == 0


def test_without_replicas_there_is_nothing_to_choose() -> None:
    with pytest.raises(RuntimeError, match="No available servers"):
        TimedRouter({}).acquire_server("one")


def test_a_window_has_every_replica() -> None:
    made = TimedRouter({"a": 1, "b": 2})
    server, _ = made.acquire_server("one")
    made.release_server(server)
    requests = {name: values["requests"] for name, values in made.take_window()["replicas"].items()}
    assert requests == {server: 1, ({"a", "b"} - {server}).pop(): 0}
    assert made.require_acquire_fields() == made.require_release_fields() == []
