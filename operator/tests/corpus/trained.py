"""What is trained, and from what: adapters, values of closed sets, shards, prompts, other models."""

from __future__ import annotations

from corpus.bad import Bad, key, megatron, merged

MODEL = "actor_rollout_ref.model"
ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
ON_A2 = {"accelerator": {"class": "atlas-a2"}, "workerGroups": [{"name": "trainer", "devicesPerNode": 8}]}


def field(name: str) -> str:
    return f"spec.verl.overrides[{name}]"


BAD = {
    "an adapter by Megatron's key": Bad(
        key(f"{MODEL}.lora.rank", 8),
        field(f"{MODEL}.lora.rank"),
        "is not read by trainer.backend FSDP2, which would train the model in full; set trainer.lora.rank",
    ),
    "an adapter by FSDP's key": Bad(
        merged(megatron({}), key(f"{MODEL}.lora_rank", 8)),
        field(f"{MODEL}.lora_rank"),
        "is not read by trainer.backend Megatron, which would train the model in full; set trainer.lora.rank",
    ),
    "an adapter of the critic by Megatron's key": Bad(
        key("critic.model.lora.rank", 8),
        field("critic.model.lora.rank"),
        "is not read by trainer.backend FSDP2, which would train the model in full",
    ),
    "an adapter without a rank": Bad(
        key(f"{MODEL}.lora_adapter_path", "/data/adapter"),
        field(f"{MODEL}.lora_adapter_path"),
        "is loaded only with a rank; use trainer.lora with that of the adapter",
    ),
    "modules of another engine": Bad(
        {"trainer": {"lora": {"rank": 8, "targets": ["q_proj", "linear_qkv"]}}},
        "spec.trainer.lora.targets[1]",
        "linear_qkv is no module of trainer.backend FSDP2, which has down_proj, ",
    ),
    "all modules in a list": Bad(
        {"trainer": {"lora": {"rank": 8, "targets": ["all-linear"]}}},
        "spec.trainer.lora.targets[0]",
        "leave out targets for all linear layers",
    ),
    "an adapter that is too wide": Bad(
        key(f"{MODEL}.lora_rank", 1024),
        field(f"{MODEL}.lora_rank"),
        "1024, and vLLM serves adapters up to rank 512; lower it",
    ),
    "an adapter that is wider than a slice of the rollout": Bad(
        {
            "model": {
                "config": {"layer_types": ["linear_attention", "full_attention"], "linear_num_value_heads": 16},
            },
            "rollout": {"parallelism": {"tensor": 2}},
            "trainer": {"lora": {"rank": 32}},
            "verl": {"overrides": {f"{MODEL}.use_remove_padding": False}},
        },
        "spec.trainer.lora.rank",
        "32, but the narrowest layer of the rollout has 8 columns on a device (16 value heads / "
        "rollout.parallelism.tensor 2); lower the rank, or send merged weights: "
        f"spec.verl.overrides[{MODEL}.lora.merge]: true",
    ),
    "an adapter by a field and by a key": Bad(
        merged({"trainer": {"lora": {"rank": 8}}}, key(f"{MODEL}.lora_alpha", 16)),
        field(f"{MODEL}.lora_alpha"),
        "is set by spec.trainer.lora.alpha; set it there",
    ),
    "an adapter without a folder": Bad(
        {"trainer": {"lora": {"rank": 8, "path": "someone/adapter"}}}, "spec.trainer.lora.path", "absolute"
    ),
    "a loss of another name": Bad(
        key(f"{ACTOR}.policy_loss.loss_mode", "gpso"),
        field(f"{ACTOR}.policy_loss.loss_mode"),
        "gpso is none of",
    ),
    "a load format of an earlier release": Bad(
        key(f"{ROLLOUT}.load_format", "dummy_dtensor"), field(f"{ROLLOUT}.load_format"), "use dummy"
    ),
    "a type of the engine by another name": Bad(
        key(f"{ROLLOUT}.dtype", "bf16"), field(f"{ROLLOUT}.dtype"), "bf16 is none of auto, half"
    ),
    "a loop that nobody registers": Bad(
        key(f"{ROLLOUT}.agent.default_agent_loop", "react_agent"),
        field(f"{ROLLOUT}.agent.default_agent_loop"),
        "react_agent is none of single_turn_agent, tool_agent; use tool_agent",
    ),
    "shards that do not divide the devices": Bad(
        key(f"{ACTOR}.fsdp_config.fsdp_size", 0), field(f"{ACTOR}.fsdp_config.fsdp_size"), "0 does not divide"
    ),
    "a format of another generation": Bad(
        merged(ON_A2, key(f"{ROLLOUT}.quantization", "fp8")),
        field(f"{ROLLOUT}.quantization"),
        "fp8: vllm-ascend does not run it on class atlas-a2; remove it",
    ),
    "a cache in a format of another generation": Bad(
        merged(ON_A2, key(f"+{ROLLOUT}.engine_kwargs.vllm.kv_cache_dtype", "fp8_e4m3")),
        field(f"+{ROLLOUT}.engine_kwargs.vllm.kv_cache_dtype"),
        "fp8_e4m3: vllm-ascend has no cache of this type on class atlas-a2",
    ),
    "training for a format of another vendor": Bad(
        merged(ON_A2, key(f"{ACTOR}.fsdp_config.qat.enable", True)),
        field(f"{ACTOR}.fsdp_config.qat.enable"),
        "verl's QAT computes in NVFP4, which class atlas-a2 does not have",
    ),
    "an embedding that no bucket holds": Bad(
        merged(
            {"model": {"architecture": "Qwen2.5-0.5B"}},
            key(f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes", 256),
        ),
        field(f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"),
        "256 MB, and the embedding of Qwen2.5-0.5B has 259 MB in bfloat16, which is sent as one; raise it to 512",
    ),
    "fewer prompts than a batch": Bad(
        key("data.train_max_samples", 1),
        field("data.train_max_samples"),
        "1 prompts do not fill a batch of trainer.globalBatchSize",
    ),
    "a reward model without a model": Bad(
        key("reward.reward_model.enable", True),
        field("reward.reward_model.enable"),
        "true, but no model is named; use reward.judge, or set verl.overrides[reward.reward_model.model_path]",
    ),
}
