"""Rules about upstream: for each a spec just inside and one just outside, and the probe of upstream's own code.

Each row is tested twice. Here, the operator accepts the inside and refuses the outside, or warns about it. In the
runtime image, `runtime/tests/upstream/test_rules.py` gives the keys of both to verl, vLLM and Megatron-Core, which must
draw the line in the same place. The keys travel in rules.json beside that test; `test_rules.py` in the launcher's tests
writes the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from builders import Json, apart, group, merged

from corpus.bad import key, megatron, trainer

ROLLOUT = "actor_rollout_ref.rollout"
REF = "actor_rollout_ref.ref"
VLLM = f"+{ROLLOUT}.engine_kwargs.vllm"
VALIDATION = f"{ROLLOUT}.val_kwargs"
PARALLEL = "actor_rollout_ref.actor.megatron"
TRANSFORMER = f"{PARALLEL}.override_transformer_config"
A3: Json = {"accelerator": {"class": "atlas-a3-superpod"}}
PPO: Json = {"algorithm": {"name": "PPO"}}
WHOLE = {"recompute_granularity": "full", "recompute_method": "block", "recompute_num_layers": 1}


class Verdict(StrEnum):
    """What the operator says about the outside."""

    REFUSED = "refused"
    WARNED = "warned"


@dataclass(frozen=True)
class Rule:
    """One line that upstream draws."""

    probe: str
    """Name of the function in the seam test that asks upstream."""
    source: str
    """File and lines of the release that the image has, where upstream raises or has its effect."""
    inside: Json
    outside: Json
    """Changes of the smallest spec."""
    field: str
    """Field that the operator names for the outside."""
    verdict: Verdict = Verdict.REFUSED


def override(name: str) -> str:
    """Return the path of an override."""
    return f"spec.verl.overrides[{name}]"


def keys(name: str, inside: object, outside: object, base: Json | None = None) -> tuple[Json, Json, str]:
    """Return both sides of a rule about one override, and its field."""
    return merged(base or {}, key(name, inside)), merged(base or {}, key(name, outside)), override(name)


def tensor(size: int, nodes: int) -> Json:
    """Return a rollout over nodes of two devices."""
    return merged(group({"nodes": nodes}), {"rollout": {"parallelism": {"tensor": size}}} | trainer(globalBatchSize=24))


FIELD = "spec.trainer"
BATCHES = {
    "a mini batch is no larger than the batch": Rule(
        "configuration",
        "verl/workers/config/actor.py:225-229",
        trainer(miniBatchSize=32),
        trainer(miniBatchSize=33, samplesPerPrompt=2),
        f"{FIELD}.miniBatchSize",
    ),
    "a batch divides over the devices": Rule(
        "configuration",
        "verl/utils/config.py:124-127",
        A3 | trainer(globalBatchSize=2, samplesPerPrompt=2, parallelism={"sequence": 2}),
        A3 | trainer(globalBatchSize=3, samplesPerPrompt=3, parallelism={"sequence": 2}),
        f"{FIELD}.globalBatchSize",
    ),
    "a batch divides over Megatron's micro batches": Rule(
        "configuration",
        "verl/utils/config.py:124-127",
        merged(megatron({"tensor": 4}), trainer(globalBatchSize=16, miniBatchSize=8, samplesPerPrompt=2)),
        merged(megatron({"tensor": 4}), trainer(globalBatchSize=12, miniBatchSize=8, samplesPerPrompt=2)),
        f"{FIELD}.globalBatchSize",
    ),
    "Megatron's sizes divide the devices": Rule(
        "configuration",
        "verl/utils/config.py:109-114",
        megatron({"tensor": 4, "pipeline": 2, "context": 2}),
        merged(megatron({"tensor": 4, "pipeline": 2, "context": 3}), trainer(globalBatchSize=48)),
        f"{FIELD}.parallelism",
    ),
    "an update divides over the ranks": Rule(
        "update",
        "verl/workers/engine_workers.py:267-269",
        trainer(globalBatchSize=4, samplesPerPrompt=1, maxTokensPerDevice=2048),
        trainer(globalBatchSize=3, samplesPerPrompt=1, maxTokensPerDevice=2048),
        f"{FIELD}.globalBatchSize",
    ),
    "a step of a trainer apart has whole mini batches": Rule(
        "trainer_apart",
        "verl/trainer/ppo/v1/trainer_separate_async.py:59-63",
        merged(apart(), trainer(miniBatchSize=16)),
        merged(apart(), trainer(miniBatchSize=12)),
        f"{FIELD}.miniBatchSize",
    ),
    "an update of the critic divides over the ranks": Rule(
        "critic_update",
        "verl/workers/engine_workers.py:267-269",
        *keys("critic.ppo_mini_batch_size", 2, 3, PPO | trainer(samplesPerPrompt=1)),
    ),
    "a step is filled up": Rule(
        "filling",
        "verl/trainer/ppo/v1/trainer_base.py:1589-1621",
        trainer(miniBatchSize=16),
        trainer(miniBatchSize=12),
        f"{FIELD}.miniBatchSize",
        Verdict.WARNED,
    ),
    "a micro batch divides a share": Rule(
        "passes",
        "verl/workers/engine/utils.py:125-127",
        trainer(microBatchSizePerDevice=4),
        trainer(microBatchSizePerDevice=3),
        f"{FIELD}.microBatchSizePerDevice",
    ),
    "a micro batch of the critic divides a share": Rule(
        "critic_passes",
        "verl/workers/engine/utils.py:125-127",
        PPO | {"critic": {"microBatchSizePerDevice": 4}},
        PPO | {"critic": {"microBatchSizePerDevice": 3}},
        "spec.critic.microBatchSizePerDevice",
    ),
    "a pass of the rollout's model divides a share": Rule(
        "rollout_passes",
        "verl/workers/engine/utils.py:125-127",
        *keys(f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", 6, 5, trainer(miniBatchSize=12)),
    ),
    "a pass of the reference divides a share": Rule(
        "reference_passes",
        "verl/workers/engine/utils.py:125-127",
        *keys(f"{REF}.log_prob_micro_batch_size_per_gpu", 2, 3),
    ),
    "a pass holds a sequence": Rule(
        "tokens",
        "verl/utils/seqlen_balancing.py:384-386",
        trainer(maxTokensPerDevice=2048),
        trainer(maxTokensPerDevice=2047),
        f"{FIELD}.maxTokensPerDevice",
    ),
    "a pass over context ranks holds a sequence": Rule(
        "tokens",
        "verl/utils/seqlen_balancing.py:384-386",
        merged(megatron({"context": 2}), trainer(maxTokensPerDevice=1024)),
        merged(megatron({"context": 2}), trainer(maxTokensPerDevice=1023)),
        f"{FIELD}.maxTokensPerDevice",
    ),
    "a pass of the rollout's model holds a sequence": Rule(
        "rollout_tokens",
        "verl/utils/seqlen_balancing.py:384-386",
        *keys(f"{ROLLOUT}.log_prob_max_token_len_per_gpu", 2048, 2047, trainer(maxTokensPerDevice=2048)),
    ),
    "passes are of one kind": Rule(
        "engine", "verl/workers/engine_workers.py:616-616", *keys(f"{ROLLOUT}.log_prob_use_dynamic_bsz", False, True)
    ),
    "a response has peers": Rule(
        "peers",
        "verl/trainer/ppo/core_algos.py:315-317",
        trainer(samplesPerPrompt=2),
        trainer(samplesPerPrompt=1),
        f"{FIELD}.samplesPerPrompt",
        Verdict.WARNED,
    ),
}
ROLLOUTS = {
    "a tensor group stays within a node, or takes whole ones": Rule(
        "replica",
        "verl/workers/rollout/replica.py:114-116",
        tensor(4, nodes=2),
        tensor(3, nodes=3),
        "spec.rollout.parallelism.tensor",
    ),
    "replicas take all devices": Rule(
        "rollout",
        "verl/workers/engine_workers.py:659-661",
        tensor(4, nodes=4),
        tensor(4, nodes=3),
        "spec.rollout.parallelism.tensor",
    ),
    "experts take a replica": Rule(
        "rollout",
        "verl/workers/config/rollout.py:294-297",
        {"rollout": {"parallelism": {"tensor": 2, "expert": 2}}},
        {"rollout": {"parallelism": {"tensor": 1, "expert": 2}}},
        "spec.rollout.parallelism.expert",
    ),
    "a rollout has one stage": Rule(
        "rollout", "verl/workers/config/rollout.py:319-323", *keys(f"{ROLLOUT}.pipeline_model_parallel_size", 1, 2)
    ),
    "a rollout has no tensor ranks of experts": Rule(
        "rollout", "verl/workers/config/rollout.py:299-300", *keys(f"+{ROLLOUT}.moe_tensor_parallel_size", 1, 2)
    ),
    "a pass holds the sequences": Rule(
        "scheduler",
        "vllm/config/scheduler.py:273-278",
        {"rollout": {"maxSequences": 256, "maxBatchedTokens": 256}},
        {"rollout": {"maxSequences": 256, "maxBatchedTokens": 255}},
        "spec.rollout.maxBatchedTokens",
    ),
    "a pass holds the sequences by default": Rule(
        "scheduler",
        "vllm/config/scheduler.py:273-278",
        merged(A3, {"rollout": {"maxBatchedTokens": 256}}),
        merged(A3, {"rollout": {"maxBatchedTokens": 255}}),
        "spec.rollout.maxBatchedTokens",
    ),
    "a pass holds the sequences, past verl": Rule(
        "scheduler", "vllm/config/scheduler.py:273-278", *keys(f"{VLLM}.max_num_seqs", 8192, 8193)
    ),
    "a pass without chunks holds a sequence, past verl": Rule(
        "scheduler",
        "vllm/config/scheduler.py:260-271",
        merged(key(VLLM, {"enable_chunked_prefill": False}), {"rollout": {"maxBatchedTokens": 2048}}),
        merged(key(VLLM, {"enable_chunked_prefill": False}), {"rollout": {"maxBatchedTokens": 2047}}),
        "spec.rollout.maxBatchedTokens",
    ),
    "a pass without chunks holds a sequence": Rule(
        "server",
        "verl/base_config.py:36-37",
        {"rollout": {"chunkedPrefill": False, "maxBatchedTokens": 2048}},
        {"rollout": {"chunkedPrefill": False, "maxBatchedTokens": 2047}},
        "spec.rollout.maxBatchedTokens",
    ),
    "a pass without chunks holds the model's context": Rule(
        "starting",
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py:1103-1119",
        merged({"rollout": {"chunkedPrefill": False}}, key(f"{ROLLOUT}.max_model_len", 8192)),
        {"rollout": {"chunkedPrefill": False}},
        "spec.rollout.maxBatchedTokens",
        Verdict.WARNED,
    ),
    "a context leaves room for a response": Rule(
        "room",
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py:594-599",
        *keys(f"{ROLLOUT}.max_model_len", 1025, 1024),
    ),
    "a context holds the longest response": Rule(
        "response",
        "verl/workers/rollout/vllm_rollout/vllm_async_server.py:601-617",
        *keys(f"{ROLLOUT}.max_model_len", 2048, 2047),
        Verdict.WARNED,
    ),
    "top-p is a share": Rule(
        "sampling",
        "vllm/sampling_params.py:517-522",
        {"rollout": {"topP": "1"}},
        {"rollout": {"topP": "1.01"}},
        "spec.rollout.topP",
    ),
    "top-p is some share": Rule(
        "sampling",
        "vllm/sampling_params.py:517-522",
        {"rollout": {"topP": "0.01"}},
        {"rollout": {"topP": "0"}},
        "spec.rollout.topP",
    ),
    "top-k may be all tokens": Rule(
        "sampling",
        "vllm/sampling_params.py:524-527",
        {"rollout": {"topK": "-1"}},
        {"rollout": {"topK": "-2"}},
        "spec.rollout.topK",
    ),
    "top-k may be 0": Rule(
        "sampling",
        "vllm/sampling_params.py:524-527",
        {"rollout": {"topK": "0"}},
        {"rollout": {"topK": "-3"}},
        "spec.rollout.topK",
    ),
    "the temperature is that of the trainer": Rule(
        "temperature",
        "vllm/sampling_params.py:429-437",
        {"rollout": {"temperature": "0.01"}},
        {"rollout": {"temperature": "0.009"}},
        "spec.rollout.temperature",
    ),
    "the memory is a share": Rule(
        "cache",
        "vllm/config/cache.py:67-67",
        {"rollout": {"memoryFraction": "1"}},
        {"rollout": {"memoryFraction": "1.01"}},
        "spec.rollout.memoryFraction",
    ),
    "the memory is a share, past verl": Rule(
        "cache", "vllm/config/cache.py:67-67", *keys(f"{VLLM}.gpu_memory_utilization", 1.0, 1.5)
    ),
    "a validation samples a share": Rule(
        "validation", "vllm/sampling_params.py:517-522", *keys(f"{VALIDATION}.top_p", 1.0, 1.5)
    ),
    "a validation samples tokens": Rule(
        "validation", "vllm/sampling_params.py:524-527", *keys(f"{VALIDATION}.top_k", 0, -2)
    ),
    "a validation is not colder than cold": Rule(
        "validation", "vllm/sampling_params.py:511-516", *keys(f"{VALIDATION}.temperature", 0.0, -0.1)
    ),
}
ENGINES = {
    "Ulysses splits packed sequences": Rule(
        "configuration",
        "verl/workers/config/actor.py:334-341",
        *keys("actor_rollout_ref.model.use_remove_padding", True, False, A3 | trainer(parallelism={"sequence": 2})),
    ),
    "a full recomputation has its layers": Rule(
        "transformer",
        "megatron/core/transformer/transformer_config.py:1172-1178",
        *keys(TRANSFORMER, WHOLE, {"recompute_granularity": "full", "recompute_method": "block"}, megatron({})),
    ),
    "a full recomputation has a method": Rule(
        "transformer",
        "megatron/core/transformer/transformer_config.py:1166-1170",
        *keys(TRANSFORMER, WHOLE, {"recompute_granularity": "full", "recompute_num_layers": 1}, megatron({})),
    ),
    "a recomputation has a known method": Rule(
        "transformer",
        "megatron/core/transformer/transformer_config.py:1161-1165",
        *keys(TRANSFORMER, WHOLE, WHOLE | {"recompute_method": "even"}, megatron({})),
    ),
    "a recomputation is of a known kind": Rule(
        "transformer",
        "megatron/core/transformer/transformer_config.py:1155-1159",
        *keys(TRANSFORMER, {"recompute_granularity": "selective"}, {"recompute_granularity": "some"}, megatron({})),
    ),
    "a selective recomputation has no layers": Rule(
        "transformer",
        "megatron/core/transformer/transformer_config.py:1179-1185",
        *keys(
            TRANSFORMER,
            {"recompute_granularity": "selective"},
            {"recompute_granularity": "selective", "recompute_num_layers": 1},
            megatron({}),
        ),
    ),
    "Megatron's grid divides the devices": Rule(
        "grid",
        "megatron/core/parallel_state.py:740-741",
        merged(megatron({"context": 4}), trainer(maxTokensPerDevice=2048)),
        merged(megatron({"context": 3}), trainer(maxTokensPerDevice=2048, globalBatchSize=30)),
        f"{FIELD}.parallelism",
    ),
    "the grid of experts divides the devices": Rule(
        "grid",
        "megatron/core/parallel_state.py:792-795",
        megatron({"expert": 16}),
        megatron({"expert": 32}),
        f"{FIELD}.parallelism.expert",
    ),
    "the tensor ranks of experts divide the devices": Rule(
        "grid",
        "megatron/core/parallel_state.py:792-795",
        megatron({"expertTensor": 2}),
        megatron({"expertTensor": 3}),
        f"{FIELD}.parallelism.expertTensor",
    ),
    "virtual stages have stages": Rule(
        "grid",
        "megatron/core/parallel_state.py:745-749",
        merged(megatron({"pipeline": 2}), key(f"{PARALLEL}.virtual_pipeline_model_parallel_size", 2)),
        merged(megatron({}), key(f"{PARALLEL}.virtual_pipeline_model_parallel_size", 2)),
        override(f"{PARALLEL}.virtual_pipeline_model_parallel_size"),
    ),
}
RULES: dict[str, Rule] = BATCHES | ROLLOUTS | ENGINES
