"""Models that do not fit into their dies."""

from corpus.bad import Bad, Json, megatron, merged

A3 = {"accelerator": {"class": "atlas-a3-superpod"}}
WIDE: Json = {"rollout": {"parallelism": {"tensor": 16}, "memoryFraction": "0.8"}}
NARROW: Json = {"rollout": {"parallelism": {"tensor": 4}, "memoryFraction": "0.25"}}
CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 5120,
    "intermediate_size": 25600,
    "num_attention_heads": 64,
    "num_hidden_layers": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "rope_scaling": None,
}
OFFLOADED: Json = {
    "trainer": {"microBatchSizePerDevice": 1, "offload": {"parameters": True, "optimizer": True}},
    "verl": {
        "overrides": {
            "+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_granularity": "full",
            "+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_method": "uniform",
            "+actor_rollout_ref.actor.megatron.override_transformer_config.recompute_num_layers": 1,
        }
    },
}  # fmt: skip
SWAPPED: Json = {"verl": {"overrides": {
    "+actor_rollout_ref.actor.megatron.override_transformer_config.swap_optimizer": True,
    "+actor_rollout_ref.actor.megatron.override_transformer_config.use_distributed_optimizer": True,
}}}  # fmt: skip


def on_a3(sizes: dict[str, int], model: Json, *changes: Json) -> Json:
    """Train a model with Megatron on one node of Atlas A3."""
    change = merged(megatron(sizes), {"model": model})
    for more in changes:
        change = merged(change, more)
    return change


BAD = {
    "an update that does not fit": Bad(
        on_a3({"tensor": 2}, {"architecture": "Qwen3-32B"}, WIDE, OFFLOADED),
        "spec.trainer.parallelism",
        "update takes",
    ),
    "a cache without room": Bad(
        on_a3({"tensor": 16}, {"config": CONFIG}, NARROW, OFFLOADED, SWAPPED),
        "spec.rollout.memoryFraction",
        "leaves 0.00 GiB per die for the KV cache",
    ),
    "a trainer that stays beside the cache": Bad(
        on_a3({"tensor": 8}, {"config": CONFIG}, WIDE, OFFLOADED, {"trainer": {"offload": {"optimizer": False}}}),
        "spec.rollout.memoryFraction",
        "generate takes",
    ),
}
