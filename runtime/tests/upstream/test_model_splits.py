"""The rules between a model and its split, on both sides, by the code of verl and vLLM that enforces them.

Each test runs upstream's own function for many sizes and compares what it refuses with `planning.model_splits`.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.planning.findings import Finding
from rljob_runtime.planning.model_facts import Fact, ModelFacts, facts_of_config
from rljob_runtime.planning.model_splits import VOCABULARY_UNIT, judge
from rljob_runtime.planning.run_layout import Layout

SIZES = range(1, 33)
HEADS = ((14, 2), (12, 2), (28, 4), (24, 8), (40, 8), (64, 4), (9, 3), (16, 16))


def refused(facts: ModelFacts, layout: Layout) -> bool:
    return any(one.refused for one in judge(facts, layout))


def raises(do: Callable[[], object], *words: str) -> bool:
    """Report whether upstream refuses; an error with other words comes from the stand-ins and says nothing."""
    try:
        do()
    except Exception as error:  # noqa: BLE001 - upstream raises whatever it likes
        return any(word in str(error) for word in words)
    return False


def heads(count: int, kv: int | None = None) -> ModelFacts:
    return ModelFacts(heads=Fact(count, "heads"), kv_heads=None if kv is None else Fact(kv, "kv"))


@pytest.mark.parametrize("count", [14, 12, 40, 64])
def test_vllm_divides_the_heads(count: int) -> None:
    from vllm.config.model import ModelConfig

    model: Any = SimpleNamespace(
        model_arch_config=SimpleNamespace(total_num_attention_heads=count), multimodal_config=None
    )
    for size in SIZES:
        parallel: Any = SimpleNamespace(
            tensor_parallel_size=size,
            enable_expert_parallel=False,
            pipeline_parallel_size=1,
            decode_context_parallel_size=1,
        )
        upstream = raises(lambda: ModelConfig.verify_with_parallel_config(model, parallel), "must be divisible")  # noqa: B023
        assert upstream == refused(heads(count), Layout(rollout_tensor=size)), size


def test_vllm_refuses_expert_parallelism_of_a_dense_model() -> None:
    from vllm.config.model import ModelConfig

    for experts in (0, 8):
        model: Any = SimpleNamespace(is_moe=experts > 0)
        upstream = raises(lambda: ModelConfig._verify_with_expert_parallelism(model), "experts")  # noqa: B023
        facts = ModelFacts(experts=Fact(experts, "experts"))
        assert upstream == refused(facts, Layout(rollout_tensor=2, rollout_expert=2))


@pytest.mark.parametrize(("count", "kv"), HEADS)
def test_vllm_shares_or_copies_key_value_heads(monkeypatch: pytest.MonkeyPatch, count: int, kv: int) -> None:
    from vllm.model_executor.layers import linear

    monkeypatch.setattr(linear, "get_tensor_model_parallel_rank", lambda: 0)
    for size in SIZES:
        monkeypatch.setattr(linear, "get_tensor_model_parallel_world_size", lambda: size)  # noqa: B023
        upstream = raises(lambda: linear.QKVParallelLinear(8, 2, count, kv, bias=False), "is not divisible by")
        assert upstream == refused(heads(count, kv), Layout(rollout_tensor=size)), size


def test_vllm_pads_the_vocabulary() -> None:
    from vllm.model_executor.layers import vocab_parallel_embedding as embedding

    assert embedding.DEFAULT_VOCAB_PADDING_SIZE == VOCABULARY_UNIT
    for vocabulary in (1, 64, 100, 32000, 151936, 152064):
        padded = embedding.pad_vocab_size(vocabulary)
        facts = ModelFacts(vocabulary=Fact(vocabulary, "vocab_size"))
        for size in SIZES:
            upstream = raises(
                lambda: embedding.vocab_range_from_global_vocab_size(padded, 0, size),  # noqa: B023
                "is not divisible by",
            )
            assert upstream == refused(facts, Layout(rollout_tensor=size)), (vocabulary, size)


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        {"rope_type": "default"},
        {"rope_type": "llama3", "factor": 8.0},
        {"rope_type": "linear", "factor": 2.0},
        {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096},
    ],
)
def test_vllm_derives_the_positions(scaling: dict[str, object] | None) -> None:
    from vllm.config.model import _get_and_verify_max_len

    config: Any = SimpleNamespace(rope_parameters=scaling, model_type="qwen2")
    architecture: Any = SimpleNamespace(derived_max_model_len_and_key=(8192.0, "max_position_embeddings"))
    derived = _get_and_verify_max_len(
        config, architecture, None, None, disable_sliding_window=False, sliding_window=None
    )
    found = facts_of_config({"max_position_embeddings": 8192, "rope_scaling": scaling}, "config.json").engine_positions
    assert found is not None
    assert found.value == derived


@pytest.mark.parametrize(("count", "kv"), HEADS)
def test_verl_splits_heads_by_ulysses(count: int, kv: int) -> None:
    from verl.models.transformers.monkey_patch import apply_monkey_patch

    # Without a model_type, nothing is patched after the assertions.
    config = SimpleNamespace(num_attention_heads=count, num_key_value_heads=kv)
    model: Any = SimpleNamespace(config=config, __module__="sys")
    for size in SIZES:
        upstream = raises(lambda: apply_monkey_patch(model, ulysses_sp_size=size), "must be divisible by")  # noqa: B023
        assert upstream == refused(heads(count, kv), Layout(sequence=size)), size


@pytest.mark.parametrize("length", [None, 1, 4096, 4097, 100_000])
def test_verl_bounds_the_length_of_the_engine(length: int | None) -> None:
    from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer

    server: Any = SimpleNamespace(
        model_config=SimpleNamespace(hf_config=SimpleNamespace(max_position_embeddings=4096)),
        config=SimpleNamespace(max_model_len=length, enable_chunked_prefill=True, max_num_batched_tokens=8192),
    )
    upstream = raises(lambda: vLLMHttpServer._validate_configs(server), "max_position_embeddings")
    found: list[Finding] = list(judge(ModelFacts(positions=Fact(4096, "positions")), Layout(model_length=length)))
    assert upstream == any(one.refused for one in found)
    if length is None:
        assert server.config.max_model_len == 4096
