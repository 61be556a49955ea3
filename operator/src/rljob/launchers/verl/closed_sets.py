"""Keys of verl whose values come from a closed set that neither the schema nor Hydra checks.

A wrong value raises after the processes of the run have started, some of them after the first rollout. Each row names
the code that holds the set: verl 0.9.1 is below verl/, vLLM 0.23.0 below vllm/. The seam tests compare the rows with
the installed packages (runtime/tests/upstream/test_closed_sets.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rljob.launchers.verl.rows import ACTOR, ROLLOUT

PRECISIONS = ("16", "fp16", "float16", "32", "fp32", "float32", "bf16", "bfloat16")
KL_TYPES = ("kl", "k1", "abs", "mse", "k2", "low_var_kl", "k3")
"""Without `full`, which is named and not implemented."""
OTHER_MODULES = "actor_rollout_ref.model.external_lib"
"""A module of the user's that verl imports, which may register more."""


@dataclass(frozen=True)
class ClosedSet:
    """The values that some keys may have."""

    keys: tuple[str, ...]
    values: tuple[str, ...]
    source: str
    """File and line of the set."""
    extended_by: str | None = None
    """A key with which a job brings values of its own; no value is judged where it is set."""
    successors: Mapping[str, str] = field(default_factory=dict)
    """Values of earlier releases, and what replaces them."""


SETS = (
    ClosedSet(
        (f"{ACTOR}.policy_loss.loss_mode",),
        (
            "vanilla",
            "dppo_tv",
            "dppo_kl",
            "gspo",
            "sapo",
            "gpg",
            "clip_cov",
            "kl_cov",
            "geo_mean",
            "dro",
            "cispo",
            "bypass_mode",
        ),
        "verl/trainer/ppo/core_algos.py:53,1285-2413",
        extended_by=OTHER_MODULES,
    ),
    ClosedSet(
        (f"{ACTOR}.kl_loss_type", "algorithm.kl_penalty"),
        (*KL_TYPES, *(f"{name}+" for name in KL_TYPES)),
        "verl/trainer/ppo/core_algos.py:2201-2251",
    ),
    ClosedSet(
        (f"{ROLLOUT}.load_format",),
        (
            "auto",
            "hf",
            "bitsandbytes",
            "dummy",
            "fastsafetensors",
            "gguf",
            "instanttensor",
            "mistral",
            "modelexpress",
            "npcache",
            "pt",
            "runai_streamer",
            "runai_streamer_sharded",
            "safetensors",
            "sharded_state",
            "tensorizer",
        ),
        "vllm/model_executor/model_loader/__init__.py:34-51",
        extended_by=OTHER_MODULES,
        successors={"dummy_dtensor": "dummy", "dummy_megatron": "dummy", "dummy_hf": "dummy"},
    ),
    ClosedSet(
        (f"{ROLLOUT}.dtype",),
        ("auto", "half", "float16", "bfloat16", "float", "float32"),
        "vllm/config/model.py:87",
        successors={"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"},
    ),
    ClosedSet(
        (f"{ACTOR}.fsdp_config.model_dtype", "actor_rollout_ref.ref.fsdp_config.model_dtype"),
        PRECISIONS,
        "verl/utils/torch_dtypes.py:20-22",
    ),
    ClosedSet(
        (f"{ROLLOUT}.multi_turn.format",),
        ("hermes", "gpt-oss", "qwen3_coder", "glm", "seed", "minimax", "kimi", "deepseek_v4", "gemma4"),
        "verl/experimental/agent_loop/tool_parser.py:96-742",
        extended_by=OTHER_MODULES,
    ),
    ClosedSet(
        (f"{ROLLOUT}.agent.default_agent_loop",),
        ("single_turn_agent", "tool_agent"),
        "verl/experimental/agent_loop/single_turn_agent_loop.py:28, tool_agent_loop.py:101",
        extended_by=f"{ROLLOUT}.agent.agent_loop_config_path",
    ),
)
