"""How a run is split, as verl's keys say it: the part of a configuration that a model's sizes must agree with.

The operator reads the keys that it renders, the launcher those of job.json. They are the same keys, so both come to the
same `Layout`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict

from rljob_runtime.planning.flattening import VLLM

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
MODEL = "actor_rollout_ref.model"
CRITIC = "critic"
TRANSFORMER = f"{ACTOR}.megatron.override_transformer_config"
CHANGED_BY_CONFIG = {
    "num_hidden_layers": "layers",
    "num_attention_heads": "heads",
    "num_key_value_heads": "kv_heads",
    "num_experts": "experts",
    "n_routed_experts": "experts",
    "intermediate_size": "width",
    "moe_intermediate_size": "expert_width",
    "shared_expert_intermediate_size": "shared_width",
    "n_shared_experts": "shared_width",
    "vocab_size": "vocabulary",
}
"""Keys below override_config, with which verl replaces those of config.json for its trainer, and the fact that each
replaces (workers/config/model.py:216 and utils/model.py:75, verl 0.9.1)."""
CHANGED_BY_TRANSFORMER = {
    "num_layers": "layers",
    "num_attention_heads": "heads",
    "num_query_groups": "kv_heads",
    "num_moe_experts": "experts",
    "ffn_hidden_size": "width",
    "moe_ffn_hidden_size": "expert_width",
    "moe_shared_expert_intermediate_size": "shared_width",
}
"""The same below override_transformer_config (megatron-core 0.16.1, transformer/transformer_config.py)."""
EVERYTHING = frozenset({*CHANGED_BY_CONFIG.values(), "positions", "engine_positions"})
NODES, NODE_DEVICES = "trainer.nnodes", "trainer.n_gpus_per_node"
LENGTHS = ("data.max_prompt_length", "data.max_response_length")


@dataclass(frozen=True)
class Layout:
    """Parallel sizes and lengths of a run."""

    megatron: bool = False
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    virtual_pipeline: int = 1
    expert: int = 1
    expert_tensor: int = 1
    sequence: int = 1
    rollout_tensor: int = 1
    rollout_data: int = 1
    rollout_expert: int = 1
    nodes: int | None = None
    node_devices: int | None = None
    """Devices of each node."""
    stages: Mapping[str, object] = field(default_factory=dict)
    """What override_transformer_config says about the layers of pipeline stages."""
    prompt_tokens: int | None = None
    response_tokens: int | None = None
    model_length: int | None = None
    """rollout.max_model_len, the longest sequence of the engine."""
    positions: int | None = None
    """override_config.max_position_embeddings, which verl's trainer and rollout server read; vLLM does not."""
    trainer_changes: frozenset[str] = frozenset()
    """Facts of the model that the keys change for the trainer."""
    rollout_changes: frozenset[str] = frozenset()

    @property
    def devices(self) -> int | None:
        """Return the devices of the run; None where the keys do not say."""
        return self.nodes * self.node_devices if self.nodes and self.node_devices else None


def read_layout(keys: Mapping[str, object]) -> Layout:
    """Return the layout of a run from its plain keys. A size of another type counts as not set; verl refuses it."""

    def size(key: str) -> int:
        return _positive(keys.get(key)) or 1

    node = f"{TRANSFORMER}."
    prompt, response = (_positive(keys.get(key)) for key in LENGTHS)
    return Layout(
        **_trainer_sizes(keys, ACTOR, f"{ACTOR}.ulysses_sequence_parallel_size"),
        megatron=keys.get(f"{ACTOR}.strategy") == "megatron",
        rollout_tensor=size(f"{ROLLOUT}.tensor_model_parallel_size"),
        rollout_data=size(f"{ROLLOUT}.data_parallel_size"),
        rollout_expert=size(f"{ROLLOUT}.expert_parallel_size"),
        nodes=_positive(keys.get(NODES)),
        node_devices=_positive(keys.get(NODE_DEVICES)),
        stages={key.removeprefix(node): value for key, value in keys.items() if key.startswith(node)},
        prompt_tokens=prompt,
        response_tokens=response,
        model_length=_positive(keys.get(f"{ROLLOUT}.max_model_len")),
        positions=_below_config(keys, "max_position_embeddings"),
        trainer_changes=_trainer_changes(keys),
        rollout_changes=_rollout_changes(keys),
    )


def critic_layout(keys: Mapping[str, object]) -> Layout:
    """Return the layout of PPO's value model, which may be another model; it has no rollout."""
    return Layout(
        **_trainer_sizes(keys, CRITIC, f"{CRITIC}.fsdp.ulysses_sequence_parallel_size"),
        megatron=keys.get(f"{CRITIC}.strategy") == "megatron",
        nodes=_positive(keys.get(NODES)),
        node_devices=_positive(keys.get(NODE_DEVICES)),
        trainer_changes=EVERYTHING if _critic_is_changed(keys) else frozenset(),
    )


class _Sizes(TypedDict):
    tensor: int
    pipeline: int
    context: int
    virtual_pipeline: int
    expert: int
    expert_tensor: int
    sequence: int


def _trainer_sizes(keys: Mapping[str, object], role: str, sequence: str) -> _Sizes:
    def size(name: str) -> int | None:
        return _positive(keys.get(f"{role}.megatron.{name}_parallel_size"))

    tensor = size("tensor_model") or 1
    return {
        "tensor": tensor,
        "pipeline": size("pipeline_model") or 1,
        "context": size("context") or 1,
        "virtual_pipeline": size("virtual_pipeline_model") or 1,
        "expert": size("expert_model") or 1,
        # Megatron's default (megatron-core 0.16.1, parallel_state.py:786).
        "expert_tensor": size("expert_tensor") or tensor,
        "sequence": _positive(keys.get(sequence)) or 1,
    }


def _critic_is_changed(keys: Mapping[str, object]) -> bool:
    nodes = (f"{CRITIC}.model.override_config", f"{CRITIC}.megatron.override_transformer_config")
    return keys.get(f"{CRITIC}.model.hf_config_path") is not None or any(key.startswith(nodes) for key in keys)


def _trainer_changes(keys: Mapping[str, object]) -> frozenset[str]:
    if keys.get(f"{MODEL}.hf_config_path") is not None:
        return EVERYTHING
    changed = {fact for name, fact in CHANGED_BY_CONFIG.items() if _set_below_config(keys, name)}
    changed |= {fact for name, fact in CHANGED_BY_TRANSFORMER.items() if keys.get(f"{TRANSFORMER}.{name}") is not None}
    return frozenset(changed)


def _rollout_changes(keys: Mapping[str, object]) -> frozenset[str]:
    """Return everything if vLLM is given another model or another config.json."""
    changed = any(
        key == f"{VLLM}.{name}" or key.startswith(f"{VLLM}.{name}.")
        for key in keys
        for name in ("hf_overrides", "hf_config_path", "model", "tensor_parallel_size", "enable_expert_parallel")
    )
    return EVERYTHING if changed else frozenset()


def _set_below_config(keys: Mapping[str, object], name: str) -> bool:
    return any(keys.get(f"{MODEL}.override_config.{inner}{name}") is not None for inner in ("", "model_config."))


def _below_config(keys: Mapping[str, object], name: str) -> int | None:
    for inner in ("model_config.", ""):
        if (value := _positive(keys.get(f"{MODEL}.override_config.{inner}{name}"))) is not None:
            return value
    return None


def _positive(value: object) -> int | None:
    """Return a size or length that verl can use; None for any other value."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 1 << 31 else None
