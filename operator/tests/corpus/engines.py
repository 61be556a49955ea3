"""What verl's engines and Megatron-Core assert about keys that only overrides set."""

from corpus.bad import Bad, key, megatron, merged, trainer

ROLLOUT = "actor_rollout_ref.rollout"
VLLM = f"+{ROLLOUT}.engine_kwargs.vllm"
VALIDATION = f"{ROLLOUT}.val_kwargs"
MEGATRON = "actor_rollout_ref.actor.megatron"
TRANSFORMER = f"{MEGATRON}.override_transformer_config"
PPO = {"algorithm": {"name": "PPO"}}


def field(name: str) -> str:
    return f"spec.verl.overrides[{name}]"


def recompute(values: dict[str, object]) -> dict[str, object]:
    return merged(megatron({}), key(TRANSFORMER, values))


BAD = {
    "data-parallel ranks of a dense model": Bad(
        {"model": {"architecture": "Qwen2.5-0.5B"}, "rollout": {"parallelism": {"data": 2}}},
        "spec.rollout.parallelism.data",
        "2: all ranks of a model without experts ask for the weights of the first",
    ),
    "a rollout in stages": Bad(
        key(f"{ROLLOUT}.pipeline_model_parallel_size", 2),
        field(f"{ROLLOUT}.pipeline_model_parallel_size"),
        "2: the rollout's engine vLLM has no such size in verl; remove it",
    ),
    "experts of another engine": Bad(
        key(f"+{ROLLOUT}.moe_tensor_parallel_size", 2),
        field(f"+{ROLLOUT}.moe_tensor_parallel_size"),
        "vLLM has no such size",
    ),
    "a cold validation": Bad(
        key(VALIDATION, {"temperature": -0.5}), field(VALIDATION), "-0.5 is below 0; use 0 for greedy sampling"
    ),
    "a validation of nothing": Bad(
        key(f"{VALIDATION}.top_p", 0), field(f"{VALIDATION}.top_p"), "0 is not above 0 and at most 1"
    ),
    "a validation of half a token": Bad(
        key(f"{VALIDATION}.top_k", 1.5), field(f"{VALIDATION}.top_k"), "1.5 is not a number of tokens"
    ),
    "a validation of fewer than all tokens": Bad(
        key(f"{VALIDATION}.top_k", -2), field(f"{VALIDATION}.top_k"), "-2 is not a number of tokens"
    ),
    "more than all of the memory, past verl": Bad(
        key(VLLM, {"gpu_memory_utilization": 85}),
        field(VLLM),
        "85 is not above 0 and at most 1; use spec.rollout.memory",
    ),
    "Ulysses on CPUs": Bad(
        trainer(parallelism={"sequence": 2}),
        "spec.trainer.parallelism.sequence",
        "2: Ulysses splits packed sequences, and class cpu does not pack; remove it",
    ),
    "Ulysses without packing": Bad(
        merged(
            {"accelerator": {"class": "atlas-a3-superpod"}, **trainer(parallelism={"sequence": 2})},
            key("actor_rollout_ref.model.use_remove_padding", False),
        ),
        field("actor_rollout_ref.model.use_remove_padding"),
        "false, but trainer.parallelism.sequence 2 splits packed sequences",
    ),
    "passes that do not divide a step": Bad(
        key(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", 3),
        field(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu"),
        "3 does not divide a device's 128 samples of a step; use one of 1, 2, 4, 8, 16, 32, 64, 128",
    ),
    "passes of nothing": Bad(
        key("actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu", 0),
        field("actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu"),
        "0 does not divide a device's 128 samples",
    ),
    "passes that hold no sequence": Bad(
        merged(trainer(maxTokensPerDevice=2048), key(f"{ROLLOUT}.log_prob_max_token_len_per_gpu", 1024)),
        field(f"{ROLLOUT}.log_prob_max_token_len_per_gpu"),
        "1024 × 1 devices that share a sequence = 1024 tokens cannot hold data.maxPromptTokens + maxResponse",
    ),
    "passes of Megatron that hold no sequence": Bad(
        merged(
            megatron({"context": 2}),
            {**trainer(maxTokensPerDevice=1024), **key("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu", 512)},
        ),
        field("actor_rollout_ref.ref.log_prob_max_token_len_per_gpu"),
        "512 × 2 devices that share a sequence = 1024 tokens",
    ),
    "passes of two kinds": Bad(
        key(f"{ROLLOUT}.log_prob_use_dynamic_bsz", True),
        field(f"{ROLLOUT}.log_prob_use_dynamic_bsz"),
        "True, but trainer.maxTokensPerDevice decides it for all passes of the actor; remove it",
    ),
    "an update of the critic over ranks": Bad(
        merged(PPO | trainer(samplesPerPrompt=1), key("critic.ppo_mini_batch_size", 3)),
        field("critic.ppo_mini_batch_size"),
        "3 prompts × trainer.samplesPerPrompt 1 do not divide over 2 data-parallel ranks",
    ),
    "an update of the critic of more than the batch": Bad(
        merged(PPO, key("critic.ppo_mini_batch_size", 64)),
        field("critic.ppo_mini_batch_size"),
        "64 is more than trainer.globalBatchSize 32; lower it",
    ),
    "half of a recomputation": Bad(
        recompute({"recompute_granularity": "full"}), field(TRANSFORMER), "full: set recompute_method to block or unif"
    ),
    "a recomputation of no kind": Bad(
        recompute({"recompute_granularity": "some"}), field(TRANSFORMER), "some is neither full nor selective"
    ),
    "a recomputation of no method": Bad(
        recompute({"recompute_granularity": "full", "recompute_method": "even", "recompute_num_layers": 1}),
        field(TRANSFORMER),
        "even is neither block nor uniform; use one of them",
    ),
    "a selective recomputation of layers": Bad(
        recompute({"recompute_granularity": "selective", "recompute_num_layers": 1}),
        field(TRANSFORMER),
        "is for recompute_granularity full only",
    ),
    "half of a recomputation of the critic": Bad(
        merged(megatron({}) | PPO, key("critic.megatron.override_transformer_config.recompute_granularity", "full")),
        field("critic.megatron.override_transformer_config.recompute_granularity"),
        "full: set recompute_method",
    ),
    "experts without sequence parallelism": Bad(
        merged(megatron({"tensor": 2, "expert": 2}), key(f"{MEGATRON}.sequence_parallel", False)),
        field(f"{MEGATRON}.sequence_parallel"),
        "false, but a model with experts over trainer.parallelism.tensor 2 needs it",
    ),
    "virtual stages of one stage": Bad(
        merged(megatron({}), key(f"{MEGATRON}.virtual_pipeline_model_parallel_size", 2)),
        field(f"{MEGATRON}.virtual_pipeline_model_parallel_size"),
        "requires trainer.parallelism.pipeline of 2 or more, but it is 1",
    ),
}
