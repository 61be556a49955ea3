"""Memory of a die, compared with published numbers.

The published "GB" of the Qwen3-235B slides are GiB: 32,768 tokens × 47 KiB are 1.47 GiB and 1.58 GB.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rljob_runtime.planning.architectures import BUILT_IN
from rljob_runtime.planning.memory import (
    OF_THE_ROLLOUT,
    Die,
    Engine,
    MemoryPlan,
    Phase,
    PhaseName,
    Recompute,
    Rollout,
    Trainer,
    _states,
    plan,
)
from rljob_runtime.planning.memory import stage_elements as elements_of_stage
from rljob_runtime.planning.shapes import Shape, ShapeError, shape_from_config
from rljob_runtime.planning.weights import (
    Cut,
    absorbed_elements,
    adapter_elements,
    kv_bytes_per_token,
    layer_elements,
    model_elements,
)

GIB = 1 << 30
A3 = Die(64 * GIB, int(61.27 * GIB), 600 << 20)
QWEN, DEEPSEEK = BUILT_IN["Qwen3-235B-A22B"], BUILT_IN["DeepSeek-V3"]
SMALL = BUILT_IN["Qwen2.5-0.5B"]
MINDSPEED = Trainer(
    Engine.MEGATRON,
    devices=128,
    stage_layers=(23, 24, 24, 23),
    tokens=8704,
    micro_batches=64,
    cut=Cut(tensor=4, expert=32),
    context=4,
    kept_experts=0.1,
    host_optimizer=True,
    offload_weights=True,
    offload_reference=True,
    reference=True,
)
FSDP = Trainer(Engine.FSDP2, devices=8, stage_layers=(24,), tokens=4096, micro_batches=4, recompute=Recompute.UNIFORM)
GRPO_32K = Rollout(
    tensor=4,
    data=32,
    expert=128,
    memory_fraction=0.87,
    sequences=256,
    batched_tokens=32768,
    sequence_tokens=34816,
    bucket_bytes=2 << 30,
)
ONE_DIE = Rollout(1, 1, 1, 0.5, 256, 8192, 2048, 2 << 30)


def near(value: float, published: float) -> bool:
    return value == pytest.approx(published, rel=0.02)


def phase(found: MemoryPlan, name: PhaseName) -> Phase:
    return next(phase for phase in found.phases if phase.name is name)


def part(found: MemoryPlan, name: PhaseName, part_name: str) -> int:
    return sum(part.bytes for part in phase(found, name).parts if part.name == part_name)


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        # The number of parameters on each model card; for DeepSeek-V3, in its report (arXiv 2412.19437, table 1).
        ("Qwen2.5-0.5B", 494_032_768),
        ("Qwen3-32B", 32_762_123_264),
        ("Qwen3-30B-A3B", 30_532_122_624),
        ("Qwen3-235B-A22B", 235_093_634_560),
    ],
)
def test_every_weight_is_counted(name: str, counted: int) -> None:
    assert model_elements(BUILT_IN[name], Cut()).total == counted


def test_deepseek_has_671_billion_weights() -> None:
    assert model_elements(DEEPSEEK, Cut()).total == pytest.approx(671.0e9, rel=1e-3)


def test_a_die_of_the_235b_rollout_holds_7_09_gib() -> None:
    assert near(part(plan(QWEN, A3, MINDSPEED, GRPO_32K), PhaseName.TRANSFER, "rollout weights") / GIB, 7.09)


def test_a_token_of_the_235b_takes_188_kib_and_47_of_them_on_a_die_of_four() -> None:
    assert near(kv_bytes_per_token(QWEN, 1) / 1024, 188)
    assert near(kv_bytes_per_token(QWEN, 4) / 1024, 47)
    assert near(32768 * kv_bytes_per_token(QWEN, 4) / GIB, 1.47)


def test_a_token_of_deepseek_takes_68_6_kib_whatever_the_tensor_size() -> None:
    assert near(kv_bytes_per_token(DEEPSEEK, 1) / 1024, 68.6)
    assert kv_bytes_per_token(DEEPSEEK, 1) == kv_bytes_per_token(DEEPSEEK, 16)


def test_a_middle_stage_of_the_235b_training_holds_4_17_gib() -> None:
    assert near(elements_of_stage(QWEN, MINDSPEED, 1).total * 2 / GIB, 4.17)


def test_the_cache_of_the_235b_rollout_is_as_large_as_the_published_one() -> None:
    # The slides show 900,608 tokens per data-parallel rank and "20 to 30" full-length sequences.
    found = plan(QWEN, A3, MINDSPEED, GRPO_32K)
    assert near(found.kv_tokens, 900_608)
    assert 20 < found.full_sequences < 30


def test_fewer_heads_of_keys_than_ranks_are_repeated() -> None:
    assert kv_bytes_per_token(QWEN, 8) == kv_bytes_per_token(QWEN, 4)


def test_the_first_layers_of_deepseek_are_dense() -> None:
    assert [layer_elements(DEEPSEEK, layer, Cut()).experts > 0 for layer in range(5)] == [False] * 3 + [True] * 2


def test_experts_follow_their_own_grid() -> None:
    whole = layer_elements(QWEN, 0, Cut()).experts
    assert layer_elements(QWEN, 0, Cut(tensor=4, expert=32)).experts == whole / 32
    assert layer_elements(QWEN, 0, Cut(tensor=4, expert=8, expert_tensor=4)).experts == whole / 32


def test_latent_attention_is_held_twice_by_the_engine() -> None:
    assert absorbed_elements(QWEN, 4) == 0
    assert absorbed_elements(DEEPSEEK, 2) == 61 * 512 * 128 * 256 / 2


def test_the_published_recipe_fits_in_every_phase() -> None:
    found = plan(QWEN, A3, MINDSPEED, GRPO_32K)
    assert found.peak.name is PhaseName.GENERATE
    assert all(phase.bytes < A3.memory_bytes for phase in found.phases)
    # Only vLLM's share, the driver's share and the trainer's communicators are on the die.
    outside = (64 - 61.27) * GIB + 6 * A3.communicator_bytes
    assert found.peak.bytes == pytest.approx(0.87 * 61.27 * GIB + outside, abs=4)


def test_the_optimizer_takes_12_bytes_a_weight_over_the_ranks_that_share_it() -> None:
    on_die = replace(MINDSPEED, host_optimizer=False)
    held = elements_of_stage(QWEN, on_die, 0)
    # 128 dies / (tensor 4 × pipeline 4) = 8 hold the same dense weights. Every expert is on one die only.
    expected = 12 * (held.dense / 8 + held.experts)
    assert part(plan(QWEN, A3, on_die, GRPO_32K), PhaseName.UPDATE, "optimizer state") == int(expected)


def test_gradients_are_kept_in_fp32() -> None:
    found = plan(QWEN, A3, MINDSPEED, GRPO_32K)
    weights, gradients = (part(found, PhaseName.UPDATE, name) for name in ("trainer weights", "gradients"))
    assert gradients == pytest.approx(2 * weights, abs=4)


def test_what_is_not_offloaded_lies_beside_the_cache() -> None:
    kept = replace(MINDSPEED, offload_weights=False, offload_reference=False, host_optimizer=False)
    names = {part.name for part in phase(plan(QWEN, A3, kept, GRPO_32K), PhaseName.GENERATE).parts}
    assert {"trainer weights", "gradients", "optimizer state", "reference weights"} <= names
    moved = {part.name for part in phase(plan(QWEN, A3, MINDSPEED, GRPO_32K), PhaseName.GENERATE).parts}
    assert not {"trainer weights", "gradients", "optimizer state", "reference weights"} & moved


def test_actor_and_reference_take_turns_when_both_are_offloaded() -> None:
    def weights(trainer: Trainer) -> int:
        found = phase(plan(QWEN, A3, trainer, GRPO_32K), PhaseName.LOG_PROBABILITIES)
        return sum(part.bytes for part in found.parts if part.name.endswith(" weights"))

    assert weights(replace(MINDSPEED, offload_weights=False)) == 2 * weights(MINDSPEED)
    assert weights(replace(MINDSPEED, reference=False)) == weights(MINDSPEED)


def test_a_critic_leaves_what_the_actor_leaves() -> None:
    with_critic = replace(FSDP, critic=True)
    found = plan(SMALL, A3, with_critic, ONE_DIE)
    alone = plan(SMALL, A3, FSDP, ONE_DIE)
    share = 494_032_768 / 8
    assert part(found, PhaseName.GENERATE, "critic") == pytest.approx(16 * share, abs=8)
    assert found.peak.bytes - alone.peak.bytes == pytest.approx(16 * share, abs=8)
    moved = replace(with_critic, offload_weights=True, offload_optimizer=True)
    assert part(plan(SMALL, A3, moved, ONE_DIE), PhaseName.GENERATE, "critic") == 0


def test_an_adapter_has_gradients_and_moments_of_its_own_only() -> None:
    """Qwen3-32B on eight dies: 64 layers of 5120 × 25600, 64 heads and 8 key heads of 128."""
    shape, rank = BUILT_IN["Qwen3-32B"], 32
    sizes = [(5120, 8192), (5120, 1024), (5120, 1024), (8192, 5120), (5120, 25600), (5120, 25600), (25600, 5120)]
    adapter = rank * 64 * sum(map(sum, sizes))
    assert adapter_elements(shape, rank) == adapter
    trainer = Trainer(Engine.FSDP2, 8, (64,), tokens=2048, micro_batches=1, adapter_rank=rank)
    found = {part.name: part.bytes for part in _states(shape, trainer, 0).updating()}
    assert found["gradients"] == adapter * 4 // 8
    assert found["optimizer state"] == adapter * 8 // 8
    assert found["trainer weights"] == (int(model_elements(shape, Cut()).total) + adapter) * 4 // 8
    halved = {part.name: part.bytes for part in _states(shape, replace(trainer, element_bytes=2), 0).updating()}
    assert halved["trainer weights"] * 2 == found["trainer weights"]
    whole = {part.name: part.bytes for part in _states(shape, replace(trainer, critic=True), 0).updating()}
    assert whole["critic"] > 4 * found["trainer weights"] - 10**9, "the critic is trained as a whole"


def test_an_adapter_of_megatron_has_its_state_spread_over_the_ranks() -> None:
    shape = BUILT_IN["Qwen3-32B"]
    trainer = Trainer(Engine.MEGATRON, 16, (32, 32), 2048, 4, Cut(4), adapter_rank=32)
    found = {part.name: part.bytes for part in _states(shape, trainer, 0).updating()}
    share = adapter_elements(shape, 32) / 4 / 2
    assert found["gradients"] == int(share * 4)
    assert found["optimizer state"] == int(share / 2 * 12)


@pytest.mark.parametrize("name", ["Qwen3-235B-A22B", "DeepSeek-V3"])
def test_the_adapter_of_a_mixture_is_small(name: str) -> None:
    shape = BUILT_IN[name]
    assert 0 < adapter_elements(shape, 32) < model_elements(shape, Cut()).total / 500


def test_recomputing_layers_saves_activations() -> None:
    def activations(trainer: Trainer) -> int:
        # The first stage has no logits and the most micro batches in flight.
        return part(plan(QWEN, A3, trainer, GRPO_32K), PhaseName.UPDATE, "activations")

    full = replace(MINDSPEED, kept_experts=1.0)
    block = replace(full, recompute=Recompute.BLOCK, recompute_layers=12)
    uniform = replace(full, recompute=Recompute.UNIFORM)
    assert activations(full) > activations(MINDSPEED)
    assert activations(full) > activations(block) > activations(uniform)
    assert activations(replace(block, recompute_layers=24)) == activations(uniform)


def test_tied_weights_are_held_once_on_a_stage_that_has_both_ends() -> None:
    one = Trainer(Engine.MEGATRON, 8, (24,), 1024, 1)
    two = replace(one, stage_layers=(12, 12))
    embedding = 151936 * 896
    assert elements_of_stage(SMALL, one, 0).total == 494_032_768
    apart = sum(elements_of_stage(SMALL, two, stage).total for stage in (0, 1))
    assert apart == 494_032_768 + embedding


def test_a_replica_without_spread_experts_cuts_each() -> None:
    cut = replace(GRPO_32K, data=1, expert=1)
    weights = part(plan(QWEN, A3, MINDSPEED, cut), PhaseName.TRANSFER, "rollout weights")
    assert weights == pytest.approx(235.09e9 * 2 / 4, rel=0.01)


def test_apart_each_phase_is_one_of_the_dies_of_a_role() -> None:
    shared, apart = (plan(QWEN, A3, MINDSPEED, replace(GRPO_32K, apart=apart)) for apart in (False, True))
    assert (shared.apart, apart.apart) == (False, True)
    names = {phase.name: {part.name for part in phase.parts} for phase in apart.phases}
    of_trainer = {"trainer weights", "communicators of the trainer"}
    for name, parts in names.items():
        assert bool(of_trainer & parts) == (name not in OF_THE_ROLLOUT)
        assert ("rollout weights" in parts) == (name in OF_THE_ROLLOUT)
    assert part(apart, PhaseName.TRANSFER, "buckets of the transfer") == 2 * GRPO_32K.bucket_bytes
    assert part(apart, PhaseName.RECEIVE, "buckets of the transfer") == 3 * GRPO_32K.bucket_bytes
    for name in (PhaseName.LOG_PROBABILITIES, PhaseName.UPDATE):
        assert phase(apart, name) == phase(shared, name)
    assert apart.kv_bytes == shared.kv_bytes


def test_a_cache_that_stays_takes_room_from_the_weights_that_arrive() -> None:
    without, kept = (
        phase(plan(QWEN, A3, MINDSPEED, replace(GRPO_32K, apart=True, keeps_cache=keeps)), PhaseName.RECEIVE)
        for keeps in (False, True)
    )
    assert kept.bytes - without.bytes == plan(QWEN, A3, MINDSPEED, GRPO_32K).kv_bytes


def test_a_cache_without_room_shows_what_it_needs() -> None:
    found = plan(QWEN, A3, MINDSPEED, replace(GRPO_32K, memory_fraction=0.2))
    assert found.kv_bytes < found.kv_bytes_needed
    assert found.kv_tokens == 0
    assert part(found, PhaseName.GENERATE, "KV cache") == found.kv_bytes_needed


CONFIGS: dict[str, dict[str, object]] = {
    "Qwen2.5-0.5B": {
        "model_type": "qwen2",
        "hidden_size": 896,
        "intermediate_size": 4864,
        "num_attention_heads": 14,
        "num_hidden_layers": 24,
        "num_key_value_heads": 2,
        "tie_word_embeddings": True,
        "vocab_size": 151936,
        "rope_scaling": None,
    },
    "Qwen3-235B-A22B": {
        "model_type": "qwen3_moe",
        "attention_bias": False,
        "decoder_sparse_step": 1,
        "head_dim": 128,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "max_position_embeddings": 40960,
        "mlp_only_layers": [],
        "moe_intermediate_size": 1536,
        "num_attention_heads": 64,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 94,
        "num_key_value_heads": 4,
        "tie_word_embeddings": False,
        "vocab_size": 151936,
    },
    "DeepSeek-V3": {
        "model_type": "deepseek_v3",
        "first_k_dense_replace": 3,
        "head_dim": 128,
        "hidden_size": 7168,
        "intermediate_size": 18432,
        "kv_lora_rank": 512,
        "max_position_embeddings": 163840,
        "moe_intermediate_size": 2048,
        "moe_layer_freq": 1,
        "n_routed_experts": 256,
        "n_shared_experts": 1,
        "num_attention_heads": 128,
        "num_experts_per_tok": 8,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "tie_word_embeddings": False,
        "v_head_dim": 128,
        "vocab_size": 129280,
    },
}


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_config_json_gives_the_shape_of_the_table(name: str) -> None:
    known = BUILT_IN[name]
    assert shape_from_config(CONFIGS[name], name, known.source) == known
    # Multimodal models have the decoder's keys below text_config.
    nested = json.loads(json.dumps({"model_type": "other", "text_config": CONFIGS[name]}))
    assert shape_from_config(nested, name, known.source) == known


def changed(name: str, **keys: object) -> Shape:
    return shape_from_config(CONFIGS[name] | keys, "changed", "a test")


def test_queries_may_be_uncompressed_and_experts_shared_behind_a_gate() -> None:
    lite = changed("DeepSeek-V3", model_type="deepseek_v2", q_lora_rank=None)
    assert lite.latent is not None
    assert lite.latent.query_rank is None
    difference = layer_elements(lite, 0, Cut()).total - layer_elements(DEEPSEEK, 0, Cut()).total
    assert difference == 7168 * 128 * 192 - (7168 * 1536 + 1536 + 1536 * 128 * 192)
    gated = changed("Qwen3-235B-A22B", model_type="qwen2_moe", shared_expert_intermediate_size=5632)
    more = layer_elements(gated, 0, Cut()).dense - layer_elements(QWEN, 0, Cut()).dense
    # The shared expert with its gate and a bias of queries and keys; heads are not normalised.
    assert more == 3 * 4096 * 5632 + 4096 + 128 * (64 + 2 * 4) - 2 * 128


def test_every_second_layer_may_have_experts() -> None:
    sparse = changed("Qwen3-235B-A22B", decoder_sparse_step=2)
    assert [sparse.has_experts(layer) for layer in range(4)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"model_type": "mamba"}, "model_type 'mamba' is not supported"),
        ({"vocab_size": None}, "vocab_size is None"),
        ({"hidden_size": "4096"}, "hidden_size is '4096'"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_attention_heads": 0}, "num_attention_heads is 0"),
        ({"mlp_only_layers": [3]}, "mlp_only_layers"),
    ],
)
def test_what_is_not_understood_is_refused_by_name(keys: dict[str, object], told: str) -> None:
    with pytest.raises(ShapeError, match=told):
        changed("Qwen3-235B-A22B", **keys)
