"""Rows of the rollout, and of what vLLM needs on Ascend."""

from __future__ import annotations

from rljob.launchers.verl.drafts import METHODS
from rljob.launchers.verl.rows import ATLAS, ROLLOUT, OverrideRow, RowCondition, number, whole

ROLLOUT_YAML = "trainer/config/rollout/rollout.yaml"
BATCHED_TOKENS = 8192
"""Default of max_num_batched_tokens in rollout.yaml."""
SERVER = "workers/rollout/vllm_rollout/vllm_async_server.py"
VLLM = f"+{ROLLOUT}.engine_kwargs.vllm"
"""Passed on to vLLM's own arguments (launch_server)."""
SPECULATIVE = RowCondition("rollout.speculative.method is set", lambda s: s.rollout.speculative.method != "None")

ROWS = (
    OverrideRow(f"{ROLLOUT}.name", "rollout.engine", ROLLOUT_YAML, lambda s: s.rollout.engine.lower()),
    OverrideRow(
        f"{ROLLOUT}.tensor_model_parallel_size",
        "rollout.parallelism.tensor",
        ROLLOUT_YAML,
        lambda s: s.rollout.parallelism.tensor,
    ),
    OverrideRow(
        f"{ROLLOUT}.data_parallel_size",
        "rollout.parallelism.data",
        ROLLOUT_YAML,
        lambda s: s.rollout.parallelism.data,
    ),
    OverrideRow(
        f"{ROLLOUT}.expert_parallel_size",
        "rollout.parallelism.expert",
        ROLLOUT_YAML,
        lambda s: s.rollout.parallelism.expert,
    ),
    OverrideRow(f"{ROLLOUT}.max_num_seqs", "rollout.maxSequences", ROLLOUT_YAML, lambda s: s.rollout.max_sequences),
    OverrideRow(
        f"{ROLLOUT}.max_num_batched_tokens",
        "rollout.maxBatchedTokens",
        ROLLOUT_YAML,
        lambda s: s.rollout.max_batched_tokens,
    ),
    OverrideRow(
        f"{ROLLOUT}.gpu_memory_utilization",
        "rollout.memoryFraction",
        ROLLOUT_YAML,
        lambda s: number(s.rollout.memory_fraction),
    ),
    OverrideRow(
        f"{ROLLOUT}.cudagraph_capture_sizes",
        "rollout.captureSizes",
        ROLLOUT_YAML,
        lambda s: list(s.rollout.capture_sizes) or None,
    ),
    OverrideRow(f"{ROLLOUT}.enforce_eager", "rollout.eager", ROLLOUT_YAML, lambda s: s.rollout.eager),
    OverrideRow(
        f"{ROLLOUT}.enable_chunked_prefill",
        "rollout.chunkedPrefill",
        ROLLOUT_YAML,
        lambda s: s.rollout.chunked_prefill,
    ),
    OverrideRow(f"{ROLLOUT}.temperature", "rollout.temperature", ROLLOUT_YAML, lambda s: number(s.rollout.temperature)),
    OverrideRow(f"{ROLLOUT}.top_p", "rollout.topP", ROLLOUT_YAML, lambda s: number(s.rollout.top_p)),
    OverrideRow(f"{ROLLOUT}.top_k", "rollout.topK", ROLLOUT_YAML, lambda s: whole(s.rollout.top_k)),
    OverrideRow(
        f"{VLLM}.speculative_config.method",
        "rollout.speculative.method",
        SERVER,
        lambda s: METHODS[s.rollout.speculative.method],
        SPECULATIVE,
    ),
    OverrideRow(
        f"{VLLM}.speculative_config.num_speculative_tokens",
        "rollout.speculative.tokens",
        SERVER,
        lambda s: s.rollout.speculative.tokens,
        SPECULATIVE,
    ),
    # Weights in the NZ layout cannot be updated in place: vllm-ascend refuses to wake up with them
    # (vllm_ascend/worker/worker.py, v0.23.0). `rl_config`, which newer releases have, is not in that release.
    OverrideRow(
        f"{VLLM}.additional_config.weight_nz_mode",
        "accelerator.class",
        SERVER,
        lambda _: 0,
        ATLAS,
        own=False,
    ),
    # vllm_ascend/ascend_config.py, v0.23.0: on by default, arm64 only. The runtime (node/core_binding.py) binds these
    # workers like those of the trainer on the same devices; binding twice would split the CPU pools twice.
    OverrideRow(
        f"{VLLM}.additional_config.enable_cpu_binding",
        "optimizations.coreBinding",
        SERVER,
        lambda _: False,
        ATLAS,
    ),
)
