"""Settings with which verl and vLLM compute on CPUs, so that a manifest for NPUs runs there unchanged.

The launcher applies them on the platform `cpu` to keys that job.json does not set. Data only.
"""

from __future__ import annotations

from rljob_runtime.contract import OverrideValue

FP32 = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
"""`fsdp_config.dtype` alone keeps bf16 autocast (verl/workers/engine/fsdp/transformer_impl.py, 0.9.1)."""

ACTOR = "actor_rollout_ref.actor"
REF = "actor_rollout_ref.ref"
CRITIC = "critic"
ROLLOUT = "actor_rollout_ref.rollout"
JUDGE = "reward.reward_model.rollout"

SETTINGS: dict[str, OverrideValue] = {
    "trainer.device": "cpu",
    # FSDP1 cannot synchronise module states without an accelerator.
    f"{ACTOR}.strategy": "fsdp2",
    f"{REF}.strategy": "fsdp2",
    f"{ACTOR}.fsdp_config.strategy": "fsdp2",
    f"{REF}.fsdp_config.strategy": "fsdp2",
    f"+{ACTOR}.fsdp_config.mixed_precision": dict(FP32),
    f"+{REF}.fsdp_config.mixed_precision": dict(FP32),
    # Compiling needs a C++ compiler, which the image does not have.
    f"{ACTOR}.use_torch_compile": False,
    f"{REF}.use_torch_compile": False,
    f"{ACTOR}.fsdp_config.use_torch_compile": False,
    f"{REF}.fsdp_config.use_torch_compile": False,
    # There is no flash attention on CPUs.
    "actor_rollout_ref.model.use_remove_padding": False,
    "+actor_rollout_ref.model.override_config.attn_implementation": "eager",
    "actor_rollout_ref.model.enable_gradient_checkpointing": False,
    # The critic, which verl creates only for algorithms that have one.
    f"{CRITIC}.strategy": "fsdp2",
    f"{CRITIC}.fsdp.strategy": "fsdp2",
    f"+{CRITIC}.fsdp.mixed_precision": dict(FP32),
    f"{CRITIC}.fsdp.use_torch_compile": False,
    f"{CRITIC}.model.use_remove_padding": False,
    f"+{CRITIC}.model.override_config.attn_implementation": "eager",
    f"{CRITIC}.model.enable_gradient_checkpointing": False,
    f"{CRITIC}.ppo_micro_batch_size_per_gpu": 64,
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.dtype": "float32",
    f"{ROLLOUT}.enforce_eager": True,
    # Sleeping returns device memory to the trainer, which does not exist here.
    f"{ROLLOUT}.free_cache_engine": False,
    f"+{ROLLOUT}.enable_sleep_mode": False,
    f"{ROLLOUT}.gpu_memory_utilization": 0.1,
    f"{ROLLOUT}.max_num_seqs": 128,
    # Otherwise each vLLM replica allocates a tenth of the machine's memory.
    f"+{ROLLOUT}.engine_kwargs.vllm.kv_cache_memory_bytes": 64 * 1024 * 1024,
    f"{ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": 64,
    # The engine of reward.judge, likewise.
    f"{JUDGE}.dtype": "float32",
    f"+{JUDGE}.enable_sleep_mode": False,
    f"{JUDGE}.gpu_memory_utilization": 0.1,
    f"{JUDGE}.max_num_seqs": 128,
    f"+{JUDGE}.engine_kwargs.vllm.kv_cache_memory_bytes": 64 * 1024 * 1024,
    # One process each instead of verl's eight saves three gigabytes and is no slower on few cores.
    f"{ROLLOUT}.agent.num_workers": 1,
    "reward.num_workers": 1,
    "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    "data.dataloader_num_workers": 0,
    # For small models, fewer and larger micro batches save more overhead than they cost memory.
    f"{ACTOR}.ppo_micro_batch_size_per_gpu": 64,
    f"{REF}.log_prob_micro_batch_size_per_gpu": 64,
    f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu": 64,
}

POLL_SECONDS = 0.1
"""Interval of the trainer's polls for finished responses. verl's 2 s (replay_buffer.py) would dominate steps of 3 s."""

ENVIRONMENT = {
    "VERL_PLATFORM": "cpu",
    # verl has FSDP engines only for the devices cuda and npu. The npu engine computes on the platform's device.
    "VERL_ENGINE_DEVICE": "npu",
    "VLLM_TARGET_DEVICE": "cpu",
    # Otherwise vLLM binds its threads to the cores of a NUMA node, the same cores for every replica.
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1",
    # vLLM compiles a sampling kernel (v1/sample/ops/topk_topp_sampler.py) even with enforce_eager, which needs a C++
    # compiler. The uncompiled kernel is equivalent.
    "TORCH_COMPILE_DISABLE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
"""For the driver and, through Ray's runtime environment, every process of the job; the pod's values take precedence."""
