"""Models whose sizes contradict each other, or that upstream cannot split as the job asks."""

from corpus.bad import Bad, group, key, megatron, merged, trainer
from corpus.memory import CONFIG

ROLLOUT = "actor_rollout_ref.rollout"
A2 = group({"devicesPerNode": 8}) | {"accelerator": {"class": "atlas-a2"}, "trainer": {"globalBatchSize": 64}}
THREEFOLD = {"num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 3072}


def rollout(**sizes: int) -> dict[str, object]:
    return {"rollout": {"parallelism": sizes}}


BAD = {
    "a model of no table": Bad(
        {"model": {"architecture": "GPT-2"}},
        "spec.model.architecture",
        "'GPT-2' is not one of DeepSeek-R1, DeepSeek-V3, Kimi-K2, Llama-3.1-405B",
    ),
    "a config.json without a key": Bad(
        {"model": {"config": CONFIG | {"vocab_size": None}}}, "spec.model.config", "vocab_size is None"
    ),
    "other layers than the model's": Bad(
        {"model": {"architecture": "Qwen2.5-0.5B", "layers": 25}},
        "spec.model.layers",
        "25, but model.architecture Qwen2.5-0.5B has num_hidden_layers 24; correct the field or remove it",
    ),
    "experts of a dense model": Bad(
        {"model": {"architecture": "Qwen2.5-0.5B", "experts": 8}},
        "spec.model.experts",
        "8, but model.architecture Qwen2.5-0.5B has no experts",
    ),
    "the name of weights instead of an architecture": Bad(
        {"model": {"architecture": "qwen2.5-7b-instruct"}},
        "spec.model.architecture",
        "'qwen2.5-7b-instruct' is not built in; did you mean Qwen2.5-7B? The names are DeepSeek-R1, DeepSeek-V3,",
    ),
    "one model stated twice": Bad(
        {"model": {"architecture": "Qwen3-8B", "config": CONFIG}},
        "spec.model.architecture",
        "has num_attention_heads 32, but model.config has num_attention_heads 64; remove one of them",
    ),
    "a field against a config.json": Bad(
        {"model": {"attentionHeads": 40, "config": CONFIG}},
        "spec.model.attentionHeads",
        "40, but model.config has num_attention_heads 64; correct the field or remove it",
    ),
    "heads of an architecture over the rollout's ranks": Bad(
        merged(A2, {"model": {"architecture": "Qwen2.5-0.5B", "memoryCheck": "Warn"}} | rollout(tensor=4)),
        "spec.rollout.parallelism.tensor",
        "4 does not divide num_attention_heads 14 of model.architecture Qwen2.5-0.5B; use one of 1, 2",
    ),
    "heads of a config.json over Ulysses": Bad(
        merged(
            trainer(parallelism={"sequence": 2}),
            key("actor_rollout_ref.model.use_remove_padding", True),
            {"model": {"config": CONFIG | {"num_attention_heads": 9, "num_key_value_heads": 9}}},
        ),
        "spec.trainer.parallelism.sequence",
        "2 does not divide num_attention_heads 9 of model.config",
    ),
    "key-value heads that ranks neither share nor copy": Bad(
        merged(
            group({"devicesPerNode": 3}),
            {"model": {"architecture": "Qwen2.5-1.5B"}, "trainer": {"globalBatchSize": 24}} | rollout(tensor=3),
        ),
        "spec.rollout.parallelism.tensor",
        "3 neither divides num_key_value_heads 2 of model.architecture Qwen2.5-1.5B nor is a multiple of it; use "
        "one of 1 on 3 devices",
    ),
    "a vocabulary over ranks": Bad(
        merged(
            group({"devicesPerNode": 3}),
            {"model": {"config": CONFIG | THREEFOLD}, "trainer": {"globalBatchSize": 24}} | rollout(tensor=3),
        ),
        "spec.rollout.parallelism.tensor",
        "3 does not divide vocab_size 151936 of model.config; use one of 1",
    ),
    "an MLP over ranks": Bad(
        merged(
            group({"devicesPerNode": 3}),
            {"model": {"config": CONFIG | THREEFOLD | {"intermediate_size": 1024}}, "trainer": {"globalBatchSize": 24}}
            | rollout(tensor=3),
        ),
        "spec.rollout.parallelism.tensor",
        "3 does not divide intermediate_size 1024 of model.config",
    ),
    "layers of an architecture over stages": Bad(
        merged(megatron({"pipeline": 4}), {"model": {"architecture": "Qwen3-235B-A22B", "memoryCheck": "Warn"}}),
        "spec.trainer.parallelism.pipeline",
        "4 stages do not divide num_hidden_layers 94 of model.architecture Qwen3-235B-A22B; use one of 1, 2 on 16 "
        "devices",
    ),
    "virtual stages of unequal layers": Bad(
        merged(
            megatron({"pipeline": 4}, layers=36),
            key("actor_rollout_ref.actor.megatron.virtual_pipeline_model_parallel_size", 2),
        ),
        "spec.trainer.parallelism.pipeline",
        "4 stages hold 9 of model.layers 36, and virtual_pipeline_model_parallel_size 2 does not divide 9",
    ),
    "experts of a dense model over ranks": Bad(
        merged(megatron({"expert": 2}), {"model": {"architecture": "Qwen3-8B", "memoryCheck": "Warn"}}),
        "spec.trainer.parallelism.expert",
        "2 ranks would share experts, but the model has num_experts 0 of model.architecture Qwen3-8B; use one of 1",
    ),
    "expert parallelism of a dense rollout": Bad(
        {"model": {"architecture": "Qwen3-8B"}} | rollout(tensor=2, expert=2),
        "spec.rollout.parallelism.expert",
        "2 ranks would share experts",
    ),
    "experts that ranks of the rollout split": Bad(
        merged(
            group({"devicesPerNode": 5}),
            {"model": {"architecture": "Qwen3-30B-A3B"}, "trainer": {"globalBatchSize": 40}} | rollout(data=5),
        ),
        "spec.rollout.parallelism.expert",
        "without expert parallelism tensor 1 × data 5 = 5 ranks split each expert, and 5 does not divide "
        "moe_intermediate_size 768 of model.architecture Qwen3-30B-A3B; set it to 5, or lower tensor or data",
    ),
    "a length beyond the model's": Bad(
        merged(
            {"model": {"config": CONFIG | {"max_position_embeddings": 4096}}}, key(f"{ROLLOUT}.max_model_len", 8192)
        ),
        f"spec.verl.overrides[{ROLLOUT}.max_model_len]",
        "8192 is more than max_position_embeddings 4096 of model.config; set it to 4096 or less",
    ),
}
