"""Settings with which MindSpeed e4772499 (core_r0.16.0) ends a run while the model is built.

verl's engine for NPUs hands `override_transformer_config` to MindSpeed's `repatch`
(verl/workers/engine/mindspeed/transformer_impl.py:54, 0.9.1). MindSpeed adds these keys to Megatron-Core's
configuration and validates all its features in the `__post_init__` of that
(mindspeed/core/megatron_basic/arguments_basic.py:73-99). verl chooses this engine by the device, so the rules hold with
the backend Megatron as well.
"""

from __future__ import annotations

from rljob.core.spec.model_shape import model_facts
from rljob.launchers.verl.checks.upstream.megatron import context, is_on, key, value
from rljob.launchers.verl.checks.upstream.rule import Rule, Table
from rljob.launchers.verl.checks.upstream.settings import Settings

FEATURES = "mindspeed/features_manager"
RELEASE = "MindSpeed e4772499"
OVERLAP = "core/transformer/moe/moe_feature/overlap/moe_layer.py:210"
ROTARY, SWAP = "fusions/fused_rope.py:26", "optimizer/swap_optimizer_feature.py:19"
UNALIGNED = "core/pipeline_parallel/unaligned/unaligned_pipeline.py:4"


def _window(s: Settings) -> int:
    return int(s.number(key("cp_window_size"), 1))


def _uses(s: Settings, algorithm: str) -> bool:
    return context(s) > 1 and value(s, "context_parallel_algo", "megatron_cp_algo") == algorithm


def _heads_left(s: Settings) -> int:
    heads = model_facts(s.spec).heads
    return (heads.value if heads else 0) % (context(s) * s.spec.trainer.parallelism.tensor)


CONTEXT = (
    Rule(
        "ring-window",
        f"{FEATURES}/context_parallel/context_parallel_feature.py:47",
        key("cp_window_size"),
        lambda s: _uses(s, "megatron_cp_algo") and not 1 <= _window(s) < context(s),
        "{value} is not from 1 to spec.trainer.parallelism.context - 1; set it to 1, or remove it",
    ),
    Rule(
        "ring-windows",
        f"{FEATURES}/context_parallel/context_parallel_feature.py:50",
        key("cp_window_size"),
        lambda s: _uses(s, "megatron_cp_algo") and 1 <= _window(s) < context(s) and context(s) % _window(s) > 0,
        "{value} does not divide spec.trainer.parallelism.context; set it to 1, or remove it",
    ),
    Rule(
        "ulysses-heads",
        f"{FEATURES}/context_parallel/ulysses_context_parallel.py:33",
        key("context_parallel_algo"),
        lambda s: _uses(s, "ulysses_cp_algo") and _heads_left(s) > 0,
        "{value} needs attention heads that are a multiple of tensor × context; use megatron_cp_algo",
    ),
    Rule(
        "ulysses-length",
        f"{FEATURES}/context_parallel/ulysses_context_parallel.py:29",
        key("context_parallel_algo"),
        lambda s: _uses(s, "ulysses_cp_algo") and s.number(key("seq_length"), 1) % context(s) > 0,
        f"{{value}} needs +{key('seq_length')}, a multiple of spec.trainer.parallelism.context; set it",
    ),
    Rule(
        "hybrid-degree",
        f"{FEATURES}/context_parallel/context_parallel_feature.py:60",
        key("context_parallel_algo"),
        lambda s: _uses(s, "hybrid_cp_algo") and value(s, "ulysses_degree_in_cp") is None,
        "{value} needs ulysses_degree_in_cp; set it",
    ),
)

EXPERTS = (
    Rule(
        "moe-overlap",
        f"mindspeed/{OVERLAP}",
        key("moe_alltoall_overlap_comm"),
        lambda s: is_on(s, "moe_alltoall_overlap_comm"),
        f"cannot start: {RELEASE} builds the experts with an argument that they do not take ({OVERLAP}), and verl has "
        "no names for their weights (mbridge 0.15.1, models/qwen2moe.py:104); remove it",
    ),
    Rule(
        "zero-memory",
        f"{FEATURES}/moe/moe_zero_memory.py:34",
        key("moe_zero_memory"),
        lambda s: value(s, "moe_zero_memory", "disable") != "disable" and not is_on(s, "moe_fb_overlap"),
        "{value} needs moe_fb_overlap, or moe_alltoall_overlap_comm, which cannot start; remove it, and set "
        "recompute_granularity full to save memory",
    ),
    Rule(
        "fused-accumulation",
        f"{FEATURES}/moe/gmm.py:19",
        key("gemm_gradient_accumulation_fusion"),
        lambda s: is_on(s, "gemm_gradient_accumulation_fusion") and not is_on(s, "moe_grouped_gemm", default=True),
        "needs moe_grouped_gemm; remove it, or set both",
    ),
)

OTHERS = (
    Rule(
        "unaligned-stages",
        f"mindspeed/{UNALIGNED}",
        key("pipeline_num_transformer_layers"),
        lambda s: value(s, "pipeline_num_transformer_layers") is not None,
        f"cannot start: {RELEASE} replaces a function of Megatron-Core with one that lacks an argument ({UNALIGNED}); "
        "remove it, and set num_layers_in_first_pipeline_stage and num_layers_in_last_pipeline_stage",
    ),
    Rule(
        "fused-rotary",
        f"{FEATURES}/fusions/fused_rope.py:28",
        key("use_fused_rotary_pos_emb"),
        lambda s: is_on(s, "use_fused_rotary_pos_emb") and value(s, "position_embedding_type") != "rope",
        f"cannot start: {RELEASE} reads position_embedding_type beside it ({ROTARY}), which verl does not set; remove "
        f"it, or add +{key('position_embedding_type')}: rope",
    ),
    Rule(
        "swap-optimizer",
        f"{FEATURES}/feature.py:68",
        key("swap_optimizer"),
        lambda s: is_on(s, "swap_optimizer") and not is_on(s, "use_distributed_optimizer"),
        f"cannot start: {RELEASE} requires use_distributed_optimizer beside it ({SWAP}), which verl sets in "
        f"another section; add +{key('use_distributed_optimizer')}: true",
    ),
)

RULES = (*CONTEXT, *EXPERTS, *OTHERS)
REFUSED = Table(RULES, lambda s: s.megatron and s.is_npu)
