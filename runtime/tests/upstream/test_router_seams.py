"""verl's load balancer and ours: ours is loaded by verl, chooses as verl's does, and imports none of it."""

from __future__ import annotations

import inspect
import random
import subprocess
import sys
from typing import Any

import pytest

from rljob_runtime.launcher_overrides import ROUTER_CONFIG


def parameters(function: Any) -> list[str]:
    return list(inspect.signature(function).parameters)


def test_the_router_is_loaded_from_our_file_and_times_its_replicas() -> None:
    from verl.workers.rollout import router

    chosen = router._load_router_yaml(str(ROUTER_CONFIG))
    cls = router._resolve_router_class(chosen["router_class"])
    assert "ray_cls.remote(servers, yaml_config)" in inspect.getsource(router._create_plugin_extension)
    made = cls({"a": "handle-a", "b": "handle-b"}, chosen)
    server, handle = made.acquire_server("request-1")
    assert handle == f"handle-{server}"
    made.release_server(server, "request-1")
    window = made.take_window()
    replicas = window["replicas"]
    assert set(replicas) == {"a", "b"}
    assert replicas[server]["requests"] == 1
    assert window["tail_begin"] == replicas[server]["last_release"] >= replicas[server]["first_acquire"]


def test_our_router_chooses_as_verls_does(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.workers.rollout.router import DEFAULT_ROUTING_CACHE_SIZE, GlobalRequestLoadBalancer, RequestLoadBalancer

    from rljob_runtime.verl_plugin.router import router

    assert router.STICKY_MAX >= DEFAULT_ROUTING_CACHE_SIZE
    monkeypatch.setattr(router, "STICKY_MAX", DEFAULT_ROUTING_CACHE_SIZE)
    servers = {name: f"handle-{name}" for name in "abcd"}
    theirs: Any = GlobalRequestLoadBalancer(servers)
    ours: Any = router.TimedRouter(servers)
    draw = random.Random(7)  # noqa: S311 - a test
    under_way: list[tuple[str, str]] = []
    # More requests than are remembered, and most of them more than once.
    for turn in range(60_000):
        for balancer in (theirs, ours):
            if turn % 3_000 == 1_500:
                balancer.remove_servers(["b"])
            if turn % 3_000 == 2_900:
                balancer.add_servers({"b": "handle-b"})
        if under_way and draw.random() < 0.49:
            server, request = under_way.pop(draw.randrange(len(under_way)))
            for balancer in (theirs, ours):
                balancer.release_server(server, request)
            continue
        request = f"request-{draw.randrange(12_000)}"
        random.seed(turn)
        expected = theirs.acquire_server(request)
        random.seed(turn)
        assert ours.acquire_server(request) == expected
        under_way.append((expected[0], request))
    assert ours.get_status() == theirs.get_status()
    assert ours.clear_sticky_cache() == theirs.clear_sticky_cache()
    protocol = {name for name in vars(RequestLoadBalancer) if not name.startswith("_")}
    assert protocol
    assert all(parameters(getattr(ours, name))[:1] == parameters(getattr(theirs, name))[:1] for name in protocol)


def test_our_router_needs_neither_torch_nor_verl() -> None:
    program = (
        "import sys, rljob_runtime.verl_plugin.router.router;"
        "print(sorted({'torch', 'verl', 'vllm'} & set(sys.modules)))"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "[]\n"
