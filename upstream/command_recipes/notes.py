"""What a switch or flag of the scripts does, and its known defects, for the comments of the manifests. Data.

The defects were found by reading the recipes' patches at the scripts' commits; none was observed on an NPU.
"""

from __future__ import annotations

from collections.abc import Mapping

SWITCHES: Mapping[str, str] = {
    "ROLLOUT_REBALANCE_ENABLE": (
        "1 moves waiting and running requests between the replicas of a rollout. Do not set 1 in an image of "
        "llm_rl/qwen3 later than the tag v0.1.0: the hook reads torchair_graph_config, which the patches no longer "
        "pass, and ends with a KeyError. In v0.1.0, too, duplicate tokens of a response lose their log "
        "probabilities, every finish reason becomes stop, and with two instances of the rollout one that plans no "
        "move blocks the other."
    ),
    "VLLM_ENABLE_EPLB": (
        "1 moves experts between devices by their load. With updated weights, experts may be loaded into the wrong "
        "slots without an error (vllm issue 55228); the published runs were no faster with it on balanced weights."
    ),
    "USE_HDP": (
        "1 gives each sequence only the context-parallel ranks that it needs; requires actor.use_dynamic_bsz. The "
        "first call only makes the groups and runs as without it. A sequence that needs more than all ranks is an "
        "error, and the processing of the result overwrites the variable with the lengths."
    ),
    "ALL_TO_ALL_RESHARD": (
        "1 sends each expert's weights only to the rank that serves it. The expert-parallel size of the rollout must "
        "be a multiple of the trainer's; requires USE_ALLTOALL_OVERLAP 1."
    ),
    "USE_ALLTOALL_OVERLAP": (
        "1 overlaps the experts' communication and renames their weights: the sharded weights must have been "
        "converted with the same value."
    ),
    "D2D_DATA_TRANSFER": (
        "1 keeps tensors of a step on the workers' devices instead of sending them through the driver. Only the "
        "patches of llm_rl/deepseek read it. Requires trainer.balance_batch=False, one update per batch, and data-"
        "parallel sizes that divide each other."
    ),
    "VLLM_ENABLE_GRAPH_MODE": (
        "1 captures graphs with torchair. Read by the patches of llm_rl/deepseek and of the tag v0.1.0; later ones of "
        "llm_rl/qwen3 take rollout.enforce_eager and cudagraph_capture_sizes instead."
    ),
    "VLLM_ENABLE_EXPERT_PARALLEL": "1 spreads the experts over the rollout's devices; ALL_TO_ALL_RESHARD expects it.",
    "VLLM_ENABLE_FIX_ROUTE": "1 ignores the router and spreads tokens evenly: for random weights only.",
    "VLLM_ENABLE_MC2": "1 fuses the experts' computation with their communication (vllm-ascend 0.9.1).",
    "VLLM_DP_SIZE": (
        "Devices divided by the rollout's tensor size and by its number of instances. It must follow every change of "
        "nodes or of the tensor size."
    ),
    "VLLM_SPECULATIVE_BATCH_SIZE_THRE": (
        "Above this number of requests a replica drafts no tokens. The script sets it after Ray has started, where "
        "its workers do not inherit it and draft always; here they have it."
    ),
    "TASK_QUEUE_ENABLE": "2 overlaps more, but newer vllm-ascend cannot capture it in a graph.",
    "HCCL_OP_EXPANSION_MODE": (
        "With AIV a collective times out after 1091 s whatever network.hccl.execTimeoutSeconds is. A rank that "
        "generates or saves for longer ends the run: leave the variable out then."
    ),
    "PYTORCH_NPU_ALLOC_CONF": (
        "expandable_segments excludes max_split_size_mb and garbage_collection_threshold; the recipes' patches switch"
        " the segments themselves."
    ),
    "LD_PRELOAD": "jemalloc where the image has it; a wrong path is only a warning of the loader.",
    "VLLM_ATTENTION_BACKEND": "Without an effect on NPUs, where vllm-ascend chooses the backend.",
    "VLLM_EPOCH_LENGTH_REGROUP_ENABLE": (
        "Read only by the script, which chooses data.sampler with it; here change the flags. The sampler sorts an "
        "epoch by what earlier epochs measured, which is not saved: a resumed run begins without estimates."
    ),
    "VLLM_ROLLOUT_EARLY_STOP_ENABLE": (
        "1 cuts the responses of a batch at VLLM_ROLLOUT_EARLY_STOP_FACTOR times their mean expected length, but not "
        "below VLLM_ROLLOUT_EARLY_STOP_MIN_TOKENS. It changes what the model learns."
    ),
    "VLLM_EAGER_BASELINE_NO_RESAMPLE": "Read only by the script, which leaves out the sampler with 1.",
    "VLLM_CHUNK_MOE_SIZE": (
        "Tokens that pass the experts at once, to lower the peak of memory. Read only where the image has the patch "
        "chunk_moe: from the tag v0.1.0 and from llm_rl/qwen3/verl-mindspeed."
    ),
    "HCCL_ASYNC_ERROR_HANDLING": (
        "0 switches off the watchdog of torch_npu: ranks that wait for a lost one end only by HCCL's timeouts."
    ),
    "RAY_raylet_start_wait_time_s": "The script sets it after Ray has started; here it applies to the start.",
}
FLAGS: Mapping[tuple[str, str], str] = {
    ("+actor_rollout_ref.rollout.engine_kwargs.vllm.speculative_config.method", "sam"): (
        "In this commit the patches unify sam to ngram before vllm-ascend chooses its proposer, so the run drafts by "
        "n-grams."
    ),
    ("actor_rollout_ref.rollout.spec_method", "dynamic_rl"): (
        "Drafts from high-reward responses of earlier steps, or from the EAGLE3 model, whichever is faster for a "
        "batch. The script sets nothing that trains the EAGLE3 model, so its drafts may be accepted less with time."
    ),
    ("custom_reward_function.path", "deepscaler.py"): "It gives 1.0 if the solution appears anywhere in the response.",
    ("data.val_files", "valid.parquet"): "The recipe's converter writes test.parquet; copy it, or change the name.",
    ("data.train_batch_size", "32"): "The README states 128 for the published figures.",
    ("+data.dataset_fraction", ""): "Only this part of the data is used; 1.0 for all.",
    (
        "actor_rollout_ref.actor.load_weight",
        "False",
    ): "Random weights: nothing is learned, and answers have no meaning.",
    ("actor_rollout_ref.rollout.mode", "sync"): "Removed in later releases of verl.",
    ("trainer.save_freq", "-1"): (
        "Nothing is saved: a restarted attempt begins at step 0. docs/guides/cann-recipes.md shows how to save."
    ),
    (
        "trainer.total_epochs",
        "",
    ): "The job ends when the command does; without trainer.steps its progress has no total.",
}
"""(flag, end of the script's value) -> comment."""


def flag_note(name: str, key: str, text: str) -> str:
    """Return the comment above a flag; empty if it has none."""
    for (flag, end), note in FLAGS.items():
        if flag == key and text.endswith(end):
            return "" if key == "data.train_batch_size" and not name.startswith("qwen3-32b") else note
    return ""
