"""Settings that Megatron-Core 0.16.1 refuses when it builds the model, and those that MindSpeed would refuse.

verl 0.9.1 passes `override_transformer_config` to Megatron-Bridge, which ends in the `__post_init__` of Megatron-Core's
configuration (verl/workers/engine/megatron/transformer_impl.py:371). It hands the same keys to MindSpeed's `repatch`
(verl/workers/engine/mindspeed/transformer_impl.py:54), which applies patches and never calls `validate_args`
(mindspeed/megatron_adaptor.py:57): what MindSpeed's own launcher refuses, a run accepts. Hence the warnings.
"""

from __future__ import annotations

from rljob.api.training import TrainerBackend
from rljob.core.spec.model_shape import linear_heads, model_facts
from rljob.launchers.verl.checks.upstream.rule import Rule, Table
from rljob.launchers.verl.checks.upstream.settings import Settings
from rljob.launchers.verl.rows import ACTOR, TRANSFORMER

CONFIG = "megatron/core/transformer/transformer_config.py"
MEGATRON = f"{ACTOR}.megatron"
FEATURES = "mindspeed/features_manager"
SKIPPED = "MindSpeed's own launcher refuses this, but verl skips its checks, so the effect is undefined"
GRANULARITIES, METHODS = ("full", "selective"), ("block", "uniform")
MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
ENDS = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
ACCOUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def key(name: str) -> str:
    """Return the key of a field of the transformer's configuration."""
    return f"{TRANSFORMER}.{name}"


def _value(s: Settings, name: str, default: object = None) -> object:
    return s.get(key(name), default)


def _on(s: Settings, name: str, *, default: bool = False) -> bool:
    return s.on(key(name), default=default)


def _dispatcher(s: Settings) -> object:
    return _value(s, "moe_token_dispatcher_type", "alltoall")


def _context(s: Settings) -> int:
    return s.spec.trainer.parallelism.context


def _window(s: Settings) -> int:
    return int(s.number(key("cp_window_size"), 1))


def _uses(s: Settings, algorithm: str) -> bool:
    return _context(s) > 1 and _value(s, "context_parallel_algo", "megatron_cp_algo") == algorithm


def _heads_left(s: Settings) -> int:
    heads = model_facts(s.spec).heads
    return (heads.value if heads else 0) % (_context(s) * s.spec.trainer.parallelism.tensor)


RECOMPUTE = (
    Rule(
        "recompute-modules",
        f"{CONFIG}:1208",
        key("recompute_modules"),
        lambda s: (
            _value(s, "recompute_granularity") == "selective"
            and any(name not in MODULES for name in s.listed(key("recompute_modules")))
        ),
        f"{{value}} names a module that Megatron cannot recompute; use {', '.join(MODULES)}",
    ),
    Rule(
        "recompute-distributed",
        f"{CONFIG}:1188",
        key("distribute_saved_activations"),
        lambda s: (
            _value(s, "recompute_granularity") in GRANULARITIES
            and _on(s, "distribute_saved_activations")
            and s.spec.trainer.parallelism.tensor > 1
        ),
        "true, but with spec.trainer.parallelism.tensor above 1 activations are already shared by sequence; remove it",
    ),
    Rule(
        "offload-pipeline",
        f"{CONFIG}:1145",
        key("cpu_offloading"),
        lambda s: _on(s, "cpu_offloading") and s.spec.trainer.parallelism.pipeline > 1,
        "Megatron offloads activations only without pipeline stages; remove it, or set "
        "spec.trainer.parallelism.pipeline to 1",
    ),
    Rule(
        "offload-recompute",
        f"{CONFIG}:1150",
        key("cpu_offloading"),
        lambda s: (
            _on(s, "cpu_offloading")
            and s.spec.trainer.parallelism.pipeline == 1
            and _value(s, "recompute_granularity") is not None
        ),
        "Megatron either offloads activations or recomputes them; remove it, or recompute_granularity",
    ),
)

EXPERTS = (
    Rule(
        "dispatcher-allgather",
        f"{CONFIG}:1829",
        key("moe_token_dispatcher_type"),
        lambda s: _dispatcher(s) == "allgather" and _on(s, "variable_seq_lengths", default=True),
        "allgather does not support sequences of variable length, which verl always sends; use alltoall",
    ),
    Rule(
        "deepep",
        f"{CONFIG}:1065",
        key("moe_enable_deepep"),
        lambda s: _on(s, "moe_enable_deepep") and _dispatcher(s) != "flex",
        "DeepEP needs moe_token_dispatcher_type flex; remove it, since there is no DeepEP for Ascend",
    ),
    Rule(
        "capacity-missing",
        f"{CONFIG}:1133",
        key("moe_pad_expert_input_to_capacity"),
        lambda s: _on(s, "moe_pad_expert_input_to_capacity") and _value(s, "moe_expert_capacity_factor") is None,
        "needs moe_expert_capacity_factor; set it, or remove the padding",
    ),
    *(
        Rule(
            f"overlap-{name.replace('_', '-')}",
            f"{CONFIG}:{line}",
            key("overlap_moe_expert_parallel_comm"),
            fails,
            f"needs {needs}; remove it, or change that setting",
        )
        for name, line, fails, needs in (
            (
                "experts",
                1863,
                lambda s: _on(s, "overlap_moe_expert_parallel_comm") and s.spec.trainer.parallelism.expert == 1,
                "spec.trainer.parallelism.expert above 1",
            ),
            (
                "recompute",
                1871,
                lambda s: _on(s, "overlap_moe_expert_parallel_comm") and _value(s, "recompute_granularity") == "full",
                "a recompute_granularity other than full",
            ),
        )
    ),
    Rule(
        "delayed-gradients",
        f"{CONFIG}:1910",
        key("delay_wgrad_compute"),
        lambda s: _on(s, "delay_wgrad_compute") and not _on(s, "overlap_moe_expert_parallel_comm"),
        "needs overlap_moe_expert_parallel_comm; remove it, or set both",
    ),
)

DELTA = (
    Rule(
        "delta-context",
        f"{CONFIG}:983",
        f"{MEGATRON}.context_parallel_size",
        lambda s: s.has_delta_layers and _context(s) > 1,
        "{value}, but Megatron does not split sequences of gated delta layers; set it to 1",
    ),
    *(
        Rule(
            f"delta-{name}-heads",
            f"{CONFIG}:{line}",
            f"{MEGATRON}.tensor_model_parallel_size",
            lambda s, name=name: (
                s.has_delta_layers and linear_heads(s.spec, name) % s.spec.trainer.parallelism.tensor > 0
            ),  # type: ignore[misc]
            f"{{value}} does not divide linear_num_{name}_heads of spec.model.config; use a divisor",
        )
        for name, line in (("key", 975), ("value", 978))
    ),
)

STAGES = (
    *(
        Rule(
            f"stage-empty-{name.split('_')[3]}",
            f"{CONFIG}:{line}",
            key(name),
            lambda s, name=name: _value(s, name) is not None and s.number(key(name), 1) <= 0,  # type: ignore[misc]
            "{value}: a stage needs 1 layer or more; raise it, or remove it",
        )
        for name, line in zip(ENDS, (1369, 1388), strict=True)
    ),
    *(
        Rule(
            f"layout-{name.split('_')[2]}",
            f"{CONFIG}:1300",
            key(name),
            lambda s, name=name: (  # type: ignore[misc]
                _on(s, name)
                and any(_value(s, end) is not None for end in ENDS)
                and _value(s, "pipeline_model_parallel_layout") is None
            ),
            f"excludes {' and '.join(ENDS)}; remove one of the two ways to assign layers",
        )
        for name in ACCOUNTED
    ),
    Rule(
        "layout-twice",
        f"{CONFIG}:1317",
        key("pipeline_model_parallel_layout"),
        lambda s: (
            _value(s, "pipeline_model_parallel_layout") is not None
            and (any(_value(s, name) is not None for name in ENDS) or any(_on(s, name) for name in ACCOUNTED))
        ),
        f"excludes {', '.join((*ENDS, *ACCOUNTED))}; remove one of the two ways to assign layers",
    ),
    Rule(
        "embedding-gradients",
        "megatron/core/model_parallel_config.py:426",
        key("defer_embedding_wgrad_compute"),
        lambda s: _on(s, "defer_embedding_wgrad_compute") and s.spec.trainer.parallelism.pipeline == 1,
        "has no effect without pipeline stages, and Megatron refuses it; remove it",
    ),
)

MINDSPEED = (
    Rule(
        "ring-window",
        f"{FEATURES}/context_parallel/context_parallel_feature.py:47",
        key("cp_window_size"),
        lambda s: _uses(s, "megatron_cp_algo") and not 1 <= _window(s) < _context(s),
        f"{{value}} is not from 1 to spec.trainer.parallelism.context - 1; {SKIPPED}",
    ),
    Rule(
        "ring-windows",
        f"{FEATURES}/context_parallel/context_parallel_feature.py:50",
        key("cp_window_size"),
        lambda s: _uses(s, "megatron_cp_algo") and 1 <= _window(s) < _context(s) and _context(s) % _window(s) > 0,
        f"{{value}} does not divide spec.trainer.parallelism.context; {SKIPPED}",
    ),
    Rule(
        "ulysses-heads",
        f"{FEATURES}/context_parallel/ulysses_context_parallel.py:33",
        key("context_parallel_algo"),
        lambda s: _uses(s, "ulysses_cp_algo") and _heads_left(s) > 0,
        f"{{value}} divides attention heads over tensor × context, which they are no multiple of; {SKIPPED}",
    ),
    Rule(
        "hybrid-degree",
        f"{FEATURES}/context_parallel/context_parallel_feature.py:60",
        key("context_parallel_algo"),
        lambda s: _uses(s, "hybrid_cp_algo") and _value(s, "ulysses_degree_in_cp") is None,
        f"{{value}} needs ulysses_degree_in_cp; {SKIPPED}",
    ),
    Rule(
        "zero-memory",
        f"{FEATURES}/moe/moe_zero_memory.py:34",
        key("moe_zero_memory"),
        lambda s: (
            _value(s, "moe_zero_memory", "disable") != "disable"
            and not _on(s, "moe_alltoall_overlap_comm")
            and not _on(s, "moe_fb_overlap")
        ),
        f"{{value}} needs moe_alltoall_overlap_comm or moe_fb_overlap; {SKIPPED}",
    ),
    Rule(
        "overlap-dispatcher",
        f"{FEATURES}/moe/moe_alltoall_overlap.py:25",
        key("moe_alltoall_overlap_comm"),
        lambda s: _on(s, "moe_alltoall_overlap_comm") and _dispatcher(s) not in ("alltoall", "alltoall_seq"),
        f"needs moe_token_dispatcher_type alltoall; {SKIPPED}",
    ),
    Rule(
        "overlap-grouped",
        f"{FEATURES}/moe/moe_alltoall_overlap.py:29",
        key("moe_alltoall_overlap_comm"),
        lambda s: (
            _on(s, "moe_alltoall_overlap_comm")
            and _dispatcher(s) == "alltoall"
            and not _on(s, "moe_grouped_gemm", default=True)
        ),
        f"needs moe_grouped_gemm; {SKIPPED}",
    ),
    Rule(
        "fused-accumulation",
        f"{FEATURES}/moe/gmm.py:19",
        key("gemm_gradient_accumulation_fusion"),
        lambda s: _on(s, "gemm_gradient_accumulation_fusion") and not _on(s, "moe_grouped_gemm", default=True),
        f"needs moe_grouped_gemm; {SKIPPED}",
    ),
)

CONTEXT = (
    Rule(
        "hybrid-context",
        "megatron/core/pipeline_parallel/schedules.py:615",
        key("hybrid_context_parallel"),
        lambda s: _on(s, "hybrid_context_parallel"),
        "Megatron would read plans of groups from the data iterator, in which verl has micro-batches; set it to false, "
        "and set spec.trainer.parallelism.context so that the longest sequence fits",
    ),
)

RULES = (*RECOMPUTE, *EXPERTS, *DELTA, *STAGES, *CONTEXT)
REFUSED = Table(RULES, lambda s: s.megatron)
DOUBTS = Table(MINDSPEED, lambda s: s.spec.trainer.backend is TrainerBackend.MINDSPEED)
