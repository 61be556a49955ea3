"""verl's server asks one method for the level of sleep, and ours answers it by the job's choice."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.verl_plugin.router.replica import DISCARD, KEEP


def server(cls: type[Any], rank: int = 0, *, drafts: bool = False, merges: bool = False) -> Any:
    """Return a server without an engine, as far as its level of sleep depends on it."""
    made = object.__new__(cls)
    made.model_config = SimpleNamespace(lora_rank=rank, lora={"merge": merges})
    made.config = SimpleNamespace(mtp=SimpleNamespace(enable=True, enable_rollout=drafts))
    return made


def test_a_replica_has_the_server_of_its_level(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMReplica

    from rljob_runtime.verl_plugin.router import vllm_replica

    def begin(made: Any, *, is_reward_model: bool = False) -> None:
        made.is_reward_model, made.server_class = is_reward_model, None

    monkeypatch.setattr(vLLMReplica, "__init__", begin)
    assert vllm_replica.replica_class(8, DISCARD)(is_reward_model=True).server_class is None, "verl's, of a judge"
    for level, expected in ((KEEP, vllm_replica.PromptServer), (DISCARD, vllm_replica.DiscardingServer)):
        made = vllm_replica.replica_class(8, level)()
        assert made.server_class.__ray_metadata__.modified_class.__mro__[1] is expected


def test_the_server_discards_what_a_sync_sends(monkeypatch: pytest.MonkeyPatch) -> None:
    from verl.workers.rollout.vllm_rollout import vllm_async_server

    from rljob_runtime.verl_plugin.router.vllm_replica import DiscardingServer, PromptServer

    # As on NPUs, where verl always keeps the weights.
    monkeypatch.setattr(vllm_async_server, "is_torch_npu_available", lambda **_: True)
    assert server(PromptServer)._resolve_sleep_level() == KEEP
    assert server(DiscardingServer)._resolve_sleep_level() == DISCARD
    assert server(DiscardingServer, rank=8)._resolve_sleep_level() == KEEP
    assert server(DiscardingServer, rank=8, merges=True)._resolve_sleep_level() == DISCARD
    assert server(DiscardingServer, drafts=True)._resolve_sleep_level() == KEEP


def test_verl_asks_for_the_level_wherever_weights_come_back_by_a_sync() -> None:
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

    assert "is_torch_npu_available(check_device=False)" in inspect.getsource(vLLMHttpServer._resolve_sleep_level)
    for method in (vLLMHttpServer._sleep_hybrid, vLLMHttpServer.release_kv_cache):
        assert "self.engine.sleep(level=self._resolve_sleep_level())" in inspect.getsource(method)
