"""Settings with which Megatron-Core 0.16.1, or mbridge that configures it, ends a run when it builds the model.

verl 0.9.1 passes `override_transformer_config` to Megatron-Bridge, which ends in the `__post_init__` of Megatron-Core's
configuration (verl/workers/engine/megatron/transformer_impl.py:371).
"""

from __future__ import annotations

from rljob.core.spec.model_shape import linear_heads, model_facts
from rljob.launchers.verl.checks.upstream.rule import Rule, Table
from rljob.launchers.verl.checks.upstream.settings import Settings
from rljob.launchers.verl.rows import ACTOR, MODEL, TRANSFORMER

CONFIG = "megatron/core/transformer/transformer_config.py"
MEGATRON = f"{ACTOR}.megatron"
GRANULARITIES, METHODS = ("full", "selective"), ("block", "uniform")
MODULES = ("core_attn", "moe_act", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")
ENDS = ("num_layers_in_first_pipeline_stage", "num_layers_in_last_pipeline_stage")
ACCOUNTED = ("account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split")


def key(name: str) -> str:
    """Return the key of a field of the transformer's configuration."""
    return f"{TRANSFORMER}.{name}"


def value(s: Settings, name: str, default: object = None) -> object:
    """Return a field of the transformer's configuration."""
    return s.get(key(name), default)


def is_on(s: Settings, name: str, *, default: bool = False) -> bool:
    """Report whether a switch of the transformer's configuration is on."""
    return s.on(key(name), default=default)


def _dispatcher(s: Settings) -> object:
    return value(s, "moe_token_dispatcher_type", "alltoall")


def context(s: Settings) -> int:
    """Return the ranks that share a sequence."""
    return s.spec.trainer.parallelism.context


RECOMPUTE = (
    Rule(
        "recompute-modules",
        f"{CONFIG}:1208",
        key("recompute_modules"),
        lambda s: (
            value(s, "recompute_granularity") == "selective"
            and any(name not in MODULES for name in s.listed(key("recompute_modules")))
        ),
        f"{{value}} names a module that Megatron cannot recompute; use {', '.join(MODULES)}",
    ),
    Rule(
        "recompute-distributed",
        f"{CONFIG}:1188",
        key("distribute_saved_activations"),
        lambda s: (
            value(s, "recompute_granularity") in GRANULARITIES
            and is_on(s, "distribute_saved_activations")
            and s.spec.trainer.parallelism.tensor > 1
        ),
        "true, but with spec.trainer.parallelism.tensor above 1 activations are already shared by sequence; remove it",
    ),
    Rule(
        "offload-pipeline",
        f"{CONFIG}:1145",
        key("cpu_offloading"),
        lambda s: is_on(s, "cpu_offloading") and s.spec.trainer.parallelism.pipeline > 1,
        "Megatron offloads activations only without pipeline stages; remove it, or set "
        "spec.trainer.parallelism.pipeline to 1",
    ),
    Rule(
        "offload-recompute",
        f"{CONFIG}:1150",
        key("cpu_offloading"),
        lambda s: (
            is_on(s, "cpu_offloading")
            and s.spec.trainer.parallelism.pipeline == 1
            and value(s, "recompute_granularity") is not None
        ),
        "Megatron either offloads activations or recomputes them; remove it, or recompute_granularity",
    ),
)

EXPERTS = (
    Rule(
        "dispatcher-allgather",
        f"{CONFIG}:1829",
        key("moe_token_dispatcher_type"),
        lambda s: _dispatcher(s) == "allgather" and is_on(s, "variable_seq_lengths", default=True),
        "allgather does not support sequences of variable length, which verl always sends; use alltoall",
    ),
    Rule(
        "deepep",
        f"{CONFIG}:1065",
        key("moe_enable_deepep"),
        lambda s: is_on(s, "moe_enable_deepep") and _dispatcher(s) != "flex",
        "DeepEP needs moe_token_dispatcher_type flex; remove it, since there is no DeepEP for Ascend",
    ),
    Rule(
        "capacity-missing",
        f"{CONFIG}:1133",
        key("moe_pad_expert_input_to_capacity"),
        lambda s: is_on(s, "moe_pad_expert_input_to_capacity") and value(s, "moe_expert_capacity_factor") is None,
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
                lambda s: is_on(s, "overlap_moe_expert_parallel_comm") and s.spec.trainer.parallelism.expert == 1,
                "spec.trainer.parallelism.expert above 1",
            ),
            (
                "recompute",
                1871,
                lambda s: is_on(s, "overlap_moe_expert_parallel_comm") and value(s, "recompute_granularity") == "full",
                "a recompute_granularity other than full",
            ),
        )
    ),
    Rule(
        "delayed-gradients",
        f"{CONFIG}:1910",
        key("delay_wgrad_compute"),
        lambda s: is_on(s, "delay_wgrad_compute") and not is_on(s, "overlap_moe_expert_parallel_comm"),
        "needs overlap_moe_expert_parallel_comm; remove it, or set both",
    ),
)

DELTA = (
    Rule(
        "delta-context",
        f"{CONFIG}:983",
        f"{MEGATRON}.context_parallel_size",
        lambda s: s.has_delta_layers and context(s) > 1,
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
            lambda s, name=name: value(s, name) is not None and s.number(key(name), 1) <= 0,  # type: ignore[misc] # a default
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
                is_on(s, name)
                and any(value(s, end) is not None for end in ENDS)
                and value(s, "pipeline_model_parallel_layout") is None
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
            value(s, "pipeline_model_parallel_layout") is not None
            and (any(value(s, name) is not None for name in ENDS) or any(is_on(s, name) for name in ACCOUNTED))
        ),
        f"excludes {', '.join((*ENDS, *ACCOUNTED))}; remove one of the two ways to assign layers",
    ),
    Rule(
        "embedding-gradients",
        "megatron/core/model_parallel_config.py:426",
        key("defer_embedding_wgrad_compute"),
        lambda s: is_on(s, "defer_embedding_wgrad_compute") and s.spec.trainer.parallelism.pipeline == 1,
        "has no effect without pipeline stages, and Megatron refuses it; remove it",
    ),
)

CONTEXT = (
    Rule(
        "hybrid-context",
        "megatron/core/pipeline_parallel/schedules.py:615",
        key("hybrid_context_parallel"),
        lambda s: is_on(s, "hybrid_context_parallel"),
        "Megatron would read plans of groups from the data iterator, in which verl has micro-batches; set it to false, "
        "and set spec.trainer.parallelism.context so that the longest sequence fits",
    ),
)

SEQUENCE = (
    Rule(
        "sequence-tensor",
        "megatron/core/model_parallel_config.py:411",
        key("sequence_parallel"),
        lambda s: is_on(s, "sequence_parallel") and s.spec.trainer.parallelism.tensor == 1,
        "Megatron splits sequences only with spec.trainer.parallelism.tensor above 1; verl sets it then; remove it",
    ),
)

LATENT = (
    Rule(
        "deepseek-rotary",
        "mbridge/models/deepseek_v3.py:157",
        f"{MODEL}.trust_remote_code",
        lambda s: (
            model_facts(s.spec).latent
            and s.on(f"{MEGATRON}.vanilla_mbridge", default=True)
            and not s.on(f"{MODEL}.trust_remote_code")
        ),
        "mbridge 0.15.1 reads rope_theta of DeepSeek-V3's configuration (models/deepseek_v3.py:157), which that of "
        "transformers 5 does not have; set spec.model.trustRemoteCode to true, so that the configuration of the "
        "model's folder is used",
    ),
)

RULES = (*RECOMPUTE, *EXPERTS, *DELTA, *STAGES, *CONTEXT, *SEQUENCE, *LATENT)
REFUSED = Table(RULES, lambda s: s.megatron)
