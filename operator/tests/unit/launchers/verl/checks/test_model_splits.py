"""The model's sizes against the parallel sizes: the same verdict whatever states them."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator

import pytest
from builders import Json, group, merged, small_spec, typed, validate
from corpus.memory import CONFIG
from corpus.model import A2, rollout

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Violation
from rljob.launchers.verl.checks.model_splits import CHECKS, WARNINGS
from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.shapes import Shape, shape_from_config

SIZES = (2, 3, 4, 7, 8, 12, 16, 24, 48)


def config_of(shape: Shape) -> Json:
    """Return a config.json with the sizes of an architecture."""
    family = "qwen3"
    config: Json = {}
    if (latent := shape.latent) is not None:
        family = "deepseek_v3"
        config |= {
            "kv_lora_rank": latent.kv_rank,
            "q_lora_rank": latent.query_rank,
            "qk_nope_head_dim": latent.plain_head,
            "qk_rope_head_dim": latent.rotary_head,
            "v_head_dim": latent.value_head,
        }
    if (moe := shape.experts) is not None:
        config |= {
            "num_experts" if latent is None else "n_routed_experts": moe.count,
            "num_experts_per_tok": moe.chosen,
            "moe_intermediate_size": moe.width,
            "n_shared_experts": moe.shared_width // moe.width,
            "first_k_dense_replace": moe.first_layer,
        }
        family = "qwen3_moe" if latent is None else family
    elif shape.qkv_bias:
        family = "qwen2"
    elif not shape.head_norm:
        family = "llama"
    return config | {
        "model_type": family,
        "hidden_size": shape.hidden,
        "head_dim": shape.head,
        "intermediate_size": shape.width,
        "num_attention_heads": shape.heads,
        "num_hidden_layers": shape.layers,
        "num_key_value_heads": shape.kv_heads,
        "tie_word_embeddings": shape.tied,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.positions,
    }


@functools.cache
def jobs() -> tuple[tuple[str, RLJobSpec], ...]:
    """Return jobs with every size of every dimension, and with some together, each with the sizes as text."""
    return tuple((str(sizes), typed(small_spec(sizes))) for sizes in parallelisms())


def parallelisms() -> Iterator[Json]:
    for name, size in itertools.product(("tensor", "pipeline", "expert", "expertTensor"), SIZES):
        yield {"trainer": {"backend": "Megatron", "parallelism": {name: size}}}
    for size in SIZES:
        yield {"trainer": {"parallelism": {"sequence": size}}}
    for tensor, data in itertools.product((1, *SIZES), (1, 5)):
        yield rollout(tensor=tensor, data=data)
        yield rollout(tensor=tensor, data=data, expert=tensor * data)
    yield merged(
        {"trainer": {"backend": "Megatron", "parallelism": {"tensor": 16, "pipeline": 5, "expert": 3}}},
        rollout(tensor=5),
    )


def found(job: RLJobSpec, **model: object) -> tuple[list[str], list[str]]:
    """Return the fields that are refused, and those with a warning, if a job states this of its model."""
    spec = job.model_copy(update={"model": job.model.model_copy(update=model)})
    refused = [one.field for check in CHECKS for one in check(spec)]
    return refused, [one.field for check in WARNINGS for one in check(spec)]


@pytest.mark.parametrize("shape", BUILT_IN.values(), ids=BUILT_IN)
def test_the_verdict_depends_on_the_model_and_not_on_how_it_is_stated(shape: Shape) -> None:
    config, experts = config_of(shape), shape.experts.count if shape.experts else None
    assert shape_from_config(config, shape.name, shape.source) == shape
    for sizes, job in jobs():
        refused, warned = found(job, architecture=shape.name)
        assert (refused, warned) == found(job, config=config), sizes
        # Fields state heads, layers and experts only. An architecture also knows key-value heads, inner sizes and the
        # vocabulary, and that a dense model has no experts.
        by_fields, _ = found(job, layers=shape.layers, attention_heads=shape.heads, experts=experts)
        assert set(by_fields) <= set(refused), sizes
        assert not [field for field in set(refused) - set(by_fields) if _is_of_these(shape, field, job)], sizes


def _is_of_these(shape: Shape, field: str, job: RLJobSpec) -> bool:
    """Report whether heads, layers or the number of experts alone refuse a size."""
    _, part, _, name = field.split(".")
    sizes = job.trainer.parallelism if part == "trainer" else job.rollout.parallelism
    if name in ("tensor", "sequence"):
        return bool(shape.heads % getattr(sizes, name))
    if name == "pipeline":
        return bool(shape.layers % job.trainer.parallelism.pipeline)
    experts = shape.experts.count if shape.experts else 0
    return name == "expert" and part == "trainer" and bool(experts % job.trainer.parallelism.expert)


def test_the_same_job_is_refused_however_its_heads_are_stated() -> None:
    change = merged(A2, rollout(tensor=4))
    name = "Qwen2.5-0.5B"
    for model in ({"attentionHeads": 14}, {"architecture": name}, {"config": config_of(BUILT_IN[name])}):
        checked = validate("sums", small_spec(merged(change, {"model": {"memoryCheck": "Warn"} | model})))
        assert [one.field for one in checked.violations] == ["spec.rollout.parallelism.tensor"]
        assert "use one of 1, 2" in checked.violations[0].message


def warnings(change: Json) -> list[Violation]:
    checked = validate("sums", small_spec(change))
    assert checked.violations == ()
    return list(checked.warnings)


def test_responses_that_the_positions_cut_are_a_warning() -> None:
    model = {"model": {"config": CONFIG | {"max_position_embeddings": 1536}}}
    (one,) = warnings(model)
    assert one.field == "spec.data.maxResponseTokens"
    limit = "max_position_embeddings 1536 of model.config"
    assert one.message == (
        f"data.maxPromptTokens 1024 + maxResponseTokens 1024 = 2048 exceed {limit}: a "
        "prompt of full length leaves its response 512 tokens; lower one of them, or use a model with more positions"
    )


def test_a_family_whose_memory_is_not_planned_is_a_warning_and_its_heads_count() -> None:
    config = {"model_type": "qwen3_next", "num_attention_heads": 16, "layer_types": ["linear_attention"]}
    (one,) = warnings({"model": {"config": config}})
    assert one.field == "spec.model.config"
    assert one.message.startswith("model_type 'qwen3_next' is not supported; memory is planned for deepseek_v2")
    three = {"trainer": {"globalBatchSize": 24}, "model": {"config": config}} | rollout(tensor=3)
    checked = validate("sums", small_spec(merged(group({"devicesPerNode": 3}), three)))
    (refused,) = checked.violations
    assert refused.message == "3 does not divide num_attention_heads 16 of model.config; use one of 1 on 3 devices"


def test_shared_experts_and_experts_that_engines_may_place_otherwise_are_a_warning() -> None:
    five = merged(group({"devicesPerNode": 5}), {"trainer": {"globalBatchSize": 40}})
    moe = {"model": {"architecture": "Qwen3-30B-A3B"}} | rollout(data=5, expert=5)
    assert [one.field for one in warnings(merged(five, moe))] == ["spec.rollout.parallelism.expert"]
