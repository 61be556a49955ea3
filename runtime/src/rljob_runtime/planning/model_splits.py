"""Do the parallel sizes and lengths of a run agree with the model's architecture? Pure arithmetic on both sides.

The operator judges a manifest with what it states about the model, and the launcher on the head with the model's own
config.json, before any weights are loaded. Each rule cites the line of the released package that enforces it. A rule
that upstream surely enforces refuses the run; what only may fail, or silently costs something, is a warning.

Nothing divides the hidden size itself: attention is split by heads, the MLP by its inner size (vllm 0.23.0,
model_executor/layers/linear.py:647 and 1025; vllm-ascend 0.23.0, ops/linear.py:180 and 247; megatron-core 0.16.1,
transformer/attention.py:286).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rljob_runtime.planning import pipeline_stages
from rljob_runtime.planning.arithmetic import SEARCHED, Devices, dividing
from rljob_runtime.planning.findings import Finding
from rljob_runtime.planning.model_facts import Fact, ModelFacts
from rljob_runtime.planning.run_layout import ROLLOUT as ROLLOUT_KEYS
from rljob_runtime.planning.run_layout import Layout

TRAINER = "trainer.parallelism"
ROLLOUT = "rollout.parallelism"
VOCABULARY_UNIT = 64
"""vLLM pads the vocabulary to a multiple of it (vllm 0.23.0, model_executor/layers/vocab_parallel_embedding.py:32)."""


@dataclass(frozen=True)
class Requirement:
    """What one fact requires of a parallel size."""

    name: str
    """Name of the fact in `ModelFacts`."""
    fact: Fact
    holds: Callable[[int], bool]
    problem: str = "does not divide {fact}"
    sure: bool = True
    """Whether upstream refuses every run that does not meet it."""

    @property
    def refused(self) -> bool:
        """Whether a size that does not meet it is refused."""
        return self.sure and self.fact.sure


def judge(facts: ModelFacts, layout: Layout) -> Iterator[Finding]:
    """Yield what is wrong or doubtful about a run of the model."""
    yield from judge_trainer(facts, layout)
    rollout = facts.without(layout.rollout_changes)
    devices = Devices(layout.devices, lambda size: _replicas_fit(layout, size))
    yield from _of_size(f"{ROLLOUT}.tensor", layout.rollout_tensor, _rollout_tensor(rollout), devices)
    yield from _rollout_experts(rollout, layout)
    yield from _lengths(facts, layout)


def judge_trainer(facts: ModelFacts, layout: Layout) -> Iterator[Finding]:
    """Yield what is wrong or doubtful about training the model."""
    facts = facts.without(layout.trainer_changes)
    if not layout.megatron:
        yield from _of_size(f"{TRAINER}.sequence", layout.sequence, _ulysses(facts), dividing(layout.devices))
        return
    pipeline = layout.pipeline
    inner = dividing(layout.devices, pipeline * layout.context)
    yield from _of_size(f"{TRAINER}.tensor", layout.tensor, _megatron_tensor(facts), inner)
    inner = dividing(layout.devices, pipeline * layout.expert_tensor)
    yield from _of_size(f"{TRAINER}.expert", layout.expert, _megatron_experts(facts), inner)
    inner = dividing(layout.devices, pipeline * layout.expert)
    yield from _of_size(f"{TRAINER}.expertTensor", layout.expert_tensor, _megatron_expert_width(facts), inner)
    if facts.layers is not None:
        yield from pipeline_stages.judge(facts.layers, layout)


def _replicas_fit(layout: Layout, tensor: int) -> bool:
    """Report whether the devices hold whole replicas, and each node whole tensor groups or a part of one.

    The operator requires it (launchers/verl/checks/rollout.py).
    """
    devices, here, replica = layout.devices, layout.node_devices, tensor * layout.rollout_data
    if devices is None or here is None:
        return True
    spans = layout.rollout_data == 1 and tensor % here == 0
    return devices % replica == 0 and (here % tensor == 0 or spans)


def _of_size(field: str, size: int, required: list[Requirement], devices: Devices) -> Iterator[Finding]:
    """Yield the first requirement that a size does not meet, sure ones first, with the sizes that meet all of them.

    The sizes also fit the devices, unless other sizes leave no room for any.
    """
    unmet = [one for one in required if size > 1 and not one.holds(size)]
    if not unmet:
        return
    worst = next((one for one in unmet if one.refused), unmet[0])
    limit = max(one.fact.value for one in required) or SEARCHED
    valid = devices.suggestions(limit, lambda candidate: all(one.holds(candidate) for one in required))
    message = f"{size} {worst.problem.format(fact=worst.fact)}; use one of {valid}"
    yield Finding(field, message, worst.name, refused=worst.refused)


def _divides(name: str, fact: Fact | None, *, sure: bool = True) -> list[Requirement]:
    if fact is None or fact.value == 0:
        return []
    value = fact.value
    return [Requirement(name, fact, lambda size: value % size == 0, sure=sure)]


def _shares(fact: Fact | None) -> list[Requirement]:
    """Return the requirement that key-value heads are split evenly, or replicated if there are more ranks."""
    if fact is None:
        return []
    value = fact.value
    return [
        Requirement(
            "kv_heads",
            fact,
            lambda size: value % size == 0 or size % value == 0,
            "neither divides {fact} nor is a multiple of it",
        )
    ]


def _ulysses(facts: ModelFacts) -> list[Requirement]:
    """Return what verl asserts of every model, also of one with latent attention.

    verl/models/transformers/monkey_patch.py:343 and 346 (verl 0.9.1).
    """
    return _divides("heads", facts.heads) + _shares(facts.kv_heads)


def _megatron_tensor(facts: ModelFacts) -> list[Requirement]:
    """Return what Megatron requires of its tensor ranks.

    megatron-core 0.16.1: transformer/transformer_config.py:924 (heads) and 939 (query groups),
    tensor_parallel/layers.py:842 and 1166 (both matrices of an MLP, also of shared experts),
    tensor_parallel/utils.py:118 (vocabulary; the bridge with which verl builds the model may pad it).
    """
    return (
        _divides("heads", facts.heads)
        + ([] if facts.latent else _shares(facts.kv_heads))
        + _divides("width", facts.width)
        + _divides("shared_width", facts.shared_width)
        + _divides("vocabulary", facts.vocabulary, sure=False)
    )


def _megatron_experts(facts: ModelFacts) -> list[Requirement]:
    """Return the requirement that every rank holds as many experts as the others.

    megatron-core 0.16.1: transformer/moe/moe_layer.py:101; transformer/transformer_config.py:1048 for a dense model.
    """
    fact = facts.experts
    if fact is not None and fact.value == 0:
        return [_needs_experts(fact)]
    return _divides("experts", fact)


def _megatron_expert_width(facts: ModelFacts) -> list[Requirement]:
    """Return that experts are split evenly (megatron-core 0.16.1, transformer/moe/experts.py:133-136)."""
    return _divides("expert_width", facts.expert_width)


def _rollout_tensor(facts: ModelFacts) -> list[Requirement]:
    """Return what vLLM requires of its tensor ranks.

    vllm 0.23.0: config/model.py:1190 (heads), and below model_executor/ layers/linear.py:1026-1030 (key-value heads),
    layers/linear.py:647 (MLP) and layers/vocab_parallel_embedding.py:296 (padded vocabulary); shared experts may be
    kept whole (models/deepseek_v2.py:221). vllm-ascend 0.23.0 replaces these layers and keeps their rules:
    ops/linear.py:181-186 and 247, ops/vocab_parallel_embedding.py:118.
    """
    return (
        _divides("heads", facts.heads)
        + ([] if facts.latent else _shares(facts.kv_heads))
        + _divides("width", facts.width)
        + _divides("shared_width", facts.shared_width, sure=False)
        + _padded_vocabulary(facts.vocabulary)
    )


def _padded_vocabulary(fact: Fact | None) -> list[Requirement]:
    if fact is None:
        return []
    padded = -(-fact.value // VOCABULARY_UNIT) * VOCABULARY_UNIT
    pads = f", which vLLM pads to {padded}" if padded != fact.value else ""
    return [Requirement("vocabulary", fact, lambda size: padded % size == 0, f"does not divide {{fact}}{pads}")]


def _rollout_experts(facts: ModelFacts, layout: Layout) -> Iterator[Finding]:
    """Yield what is wrong about the experts of a replica.

    With expert parallelism, a dense model is refused (vllm 0.23.0, config/model.py:1137-1142), and vllm-ascend 0.23.0
    gives each rank the rounded-down number (ops/fused_moe/fused_moe.py:425). Without it, all ranks of a replica split
    each expert (vllm 0.23.0, model_executor/layers/fused_moe/config.py:1174 and layer.py:263).
    """
    if layout.rollout_expert > 1:
        fact = facts.experts
        required = [_needs_experts(fact)] if fact and fact.value == 0 else _divides("experts", fact, sure=False)
        yield from _of_size(f"{ROLLOUT}.expert", layout.rollout_expert, required, dividing(layout.devices))
        return
    fact, ranks = facts.expert_width, layout.rollout_tensor * layout.rollout_data
    if fact is not None and fact.value % ranks:
        yield Finding(
            f"{ROLLOUT}.expert",
            f"without expert parallelism tensor {layout.rollout_tensor} × data {layout.rollout_data} = {ranks} ranks "
            f"split each expert, and {ranks} does not divide {fact}; set it to {ranks}, or lower tensor or data",
            "expert_width",
            refused=fact.sure,
        )


def _needs_experts(fact: Fact) -> Requirement:
    return Requirement("experts", fact, lambda size: size == 1, "ranks would share experts, but the model has {fact}")


def _lengths(facts: ModelFacts, layout: Layout) -> Iterator[Finding]:
    """Yield what is wrong about the length of sequences.

    verl 0.9.1 gives its server rollout.max_model_len, by default the model's positions, and refuses more than these
    (workers/rollout/vllm_rollout/vllm_async_server.py:1103-1111). Within it, responses are cut (line 613), and a prompt
    without room for one token fails (line 594). vLLM refuses more than it derives itself (vllm 0.23.0,
    config/model.py:2222-2248), unless VLLM_ALLOW_LONG_MAX_MODEL_LEN is set.
    """
    own = None if "positions" in layout.trainer_changes else facts.positions
    if layout.positions is not None:
        own = Fact(layout.positions, "override_config.max_position_embeddings", "verl.overrides")
    length = f"verl.overrides[{ROLLOUT_KEYS}.max_model_len]"
    if own is not None and layout.model_length is not None and layout.model_length > own.value:
        message = f"{layout.model_length} is more than {own}; set it to {own.value} or less"
        yield Finding(length, message, "positions", refused=own.sure)
        return
    engine = None if "engine_positions" in layout.rollout_changes else facts.engine_positions
    used = layout.model_length or (own.value if own else None)
    if engine is not None and used is not None and used > engine.value:
        yield Finding(
            length,
            f"vLLM takes sequences of {used} tokens only with VLLM_ALLOW_LONG_MAX_MODEL_LEN=1, because the model has "
            f"{engine}; set it to {engine.value} or less, or add rope_scaling to config.json",
            "engine_positions",
            refused=False,
        )
    # Of a length that the job sets, the operator's check names the override (checks/scheduler.py).
    prompt, response = layout.prompt_tokens, layout.response_tokens
    if own is not None and layout.model_length is None and prompt is not None and response is not None:
        yield from _cut_responses(prompt, response, own)


def _cut_responses(prompt: int, response: int, limit: Fact) -> Iterator[Finding]:
    used = limit.value
    if prompt + response <= used:
        return
    effect = "fails the rollout" if prompt >= used else f"leaves its response {used - prompt} tokens"
    yield Finding(
        "data.maxResponseTokens",
        f"data.maxPromptTokens {prompt} + maxResponseTokens {response} = {prompt + response} exceed {limit}: a prompt "
        f"of full length {effect}; lower one of them, or use a model with more positions",
        "positions",
        refused=False,
    )
