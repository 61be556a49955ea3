"""What verl's engines, vLLM and Megatron-Core assert about keys that only overrides set, or that fields set as well.

All of it fails after the devices are taken: verl's own check before a run (verl/utils/config.py) does not look at it.
Lines are those of verl 0.9.1 (below verl/), vLLM 0.23.0 (below vllm/) and Megatron-Core 0.16.1 (below megatron/core/).
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.spec.model_shape import model_facts
from rljob.core.validation.arithmetic import divisors, next_multiple
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.algorithms import has_critic
from rljob.launchers.verl.effective import Effective, effective
from rljob.launchers.verl.rows import ACTOR, REF, ROLLOUT, SEPARATE
from rljob.launchers.verl.sizes import data_parallel_ranks, mini_batch, model_parallel, uses_megatron
from rljob.launchers.verl.values import PACKING, whole
from rljob.render.accelerators import facts_of

CRITIC = "critic"
RECOMPUTE_METHODS = ("block", "uniform")
ONLY_ONE = {
    f"{ROLLOUT}.pipeline_model_parallel_size": "workers/config/rollout.py:319-323",
    f"{ROLLOUT}.moe_tensor_parallel_size": "workers/config/rollout.py:299-300",
}
"""Sizes that verl has for another engine than vLLM -> where it refuses them."""
PASS_SIZES = (f"{ROLLOUT}.log_prob_micro_batch_size_per_gpu", f"{REF}.log_prob_micro_batch_size_per_gpu")
PASS_TOKENS = (
    f"{ROLLOUT}.log_prob_max_token_len_per_gpu",
    f"{REF}.log_prob_max_token_len_per_gpu",
    f"{CRITIC}.ppo_infer_max_token_len_per_gpu",
)


def _overridden(view: Effective, key: str) -> object:
    """Return the value of a key that an override sets; None where a field or verl's default decides."""
    found = view.setting(key)
    return found.value if found and found.by_override else None


def _rollout_has_its_sizes(spec: RLJobSpec) -> Iterator[Violation]:
    """The configuration of the rollout is checked in its workers (workers/config/rollout.py:294-323)."""
    view = effective(spec)
    for key in ONLY_ONE:
        if (size := whole(view.value(key))) is not None and size > 1:
            yield Violation(view.field(key), f"{size}: the rollout's engine vLLM has no such size in verl; remove it")


def _validation_can_be_sampled(spec: RLJobSpec) -> Iterator[Violation]:
    """Validation samples with these values (trainer/ppo/v1/agent_loop_tq.py:72-76).

    vLLM refuses others for each request (vllm/sampling_params.py:511-531).
    """
    view, section = effective(spec), f"{ROLLOUT}.val_kwargs"
    temperature, top_p, top_k = (view.value(f"{section}.{name}") for name in ("temperature", "top_p", "top_k"))
    if _is_number(temperature) and float(str(temperature)) < 0:
        yield Violation(view.field(f"{section}.temperature"), f"{temperature} is below 0; use 0 for greedy sampling")
    if _is_number(top_p) and not 0 < float(str(top_p)) <= 1:
        yield Violation(view.field(f"{section}.top_p"), f"{top_p} is not above 0 and at most 1; 1 is usual")
    if _is_number(top_k) and (whole(top_k) is None or int(str(top_k)) < -1):
        yield Violation(view.field(f"{section}.top_k"), f"{top_k} is not a number of tokens; use -1 or 0 for all")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _ulysses_is_packed(spec: RLJobSpec) -> Iterator[Violation]:
    """Ulysses splits packed sequences only (workers/engine/fsdp/transformer_impl.py:148-152).

    On CPUs the launcher turns packing off, because there is no flash attention (verl_plugin/platform/cpu_defaults.py).
    """
    size, view = spec.trainer.parallelism.sequence, effective(spec)
    if size == 1 or uses_megatron(spec):
        return
    given = view.setting(PACKING)
    if given is None and not facts_of(spec).is_npu:
        yield Violation(
            "spec.trainer.parallelism.sequence",
            f"{size}: Ulysses splits packed sequences, and class {spec.accelerator.class_} does not pack; remove it",
        )
    elif given is not None and given.value is False:
        yield Violation(
            given.field,
            f"false, but trainer.parallelism.sequence {size} splits packed sequences; remove one of the two",
        )


def _passes_divide(spec: RLJobSpec) -> Iterator[Violation]:
    """Passes without gradients of a fixed size divide a rank's share of a step (workers/engine/utils.py:122-128).

    The share includes the samples that fill up the last update (trainer/ppo/v1/trainer_base.py:1589-1621); the sizes
    reach the engines in workers/engine_workers.py:581-584,619-629. A trainer apart from its rollout has passes over
    each mini batch (trainer/ppo/v1/trainer_base.py:533-561).
    """
    mini, ranks = mini_batch(spec), data_parallel_ranks(spec)
    batch, part = (mini, "mini batch") if SEPARATE.holds(spec) else (spec.trainer.global_batch_size, "step")
    samples = next_multiple(batch, mini) * spec.trainer.samples_per_prompt
    devices, fixed = spec.trainer_group.devices, spec.trainer.max_tokens_per_device is None
    if devices % model_parallel(spec) or samples % ranks or not fixed:
        return
    view, share = effective(spec), samples // ranks
    for key in PASS_SIZES:
        size = whole(_overridden(view, key))
        if size is not None and (size < 1 or share % size):
            yield Violation(
                view.field(key),
                f"{size} does not divide a device's {share} samples of a {part}; use one of {divisors(share)}",
            )


def _passes_hold_a_sequence(spec: RLJobSpec) -> Iterator[Violation]:
    """The bounds of passes without gradients are like trainer.maxTokensPerDevice (utils/seqlen_balancing.py:384-386).

    The critic takes the bound for its passes with gradients as well (trainer/ppo/v1/trainer_base.py:266-268).
    """
    if spec.trainer.max_tokens_per_device is None:
        return
    view, sizes = effective(spec), spec.trainer.parallelism
    share = sizes.context if uses_megatron(spec) else sizes.sequence
    longest = spec.data.max_prompt_tokens + spec.data.max_response_tokens
    for key in PASS_TOKENS:
        tokens = whole(_overridden(view, key))
        if tokens is not None and tokens * share < longest:
            yield Violation(
                view.field(key),
                f"{tokens} × {share} devices that share a sequence = {tokens * share} tokens cannot hold "
                f"data.maxPromptTokens + maxResponseTokens = {longest}; set it to {-(-longest // share)} or more",
            )


def _passes_are_of_one_kind(spec: RLJobSpec) -> Iterator[Violation]:
    """The actor's workers assert that both kinds of its passes are split alike (workers/engine_workers.py:616)."""
    view, key = effective(spec), f"{ROLLOUT}.log_prob_use_dynamic_bsz"
    given, wanted = view.setting(key), spec.trainer.max_tokens_per_device is not None
    if given is not None and given.value is not wanted:
        yield Violation(
            given.field,
            f"{given.value!s:.32}, but trainer.maxTokensPerDevice decides it for all passes of the actor; remove it",
        )


def _critic_updates_divide(spec: RLJobSpec) -> Iterator[Violation]:
    """The critic's updates divide over the ranks (workers/engine_workers.py:266-269), and no step is smaller.

    The second is asserted with batches of a fixed size only (workers/config/critic.py:124-129).
    """
    if not has_critic(spec) or spec.trainer_group.devices % model_parallel(spec):
        return
    view, key, ranks = effective(spec), f"{CRITIC}.ppo_mini_batch_size", data_parallel_ranks(spec)
    mini, samples, batch = (
        whole(_overridden(view, key)),
        spec.trainer.samples_per_prompt,
        spec.trainer.global_batch_size,
    )
    if mini is None:
        return
    if mini < 1 or mini * samples % ranks:
        yield Violation(
            view.field(key),
            f"{mini} prompts × trainer.samplesPerPrompt {samples} do not divide over {ranks} data-parallel ranks; "
            "remove it",
        )
    elif mini > batch and spec.trainer.max_tokens_per_device is None:
        yield Violation(view.field(key), f"{mini} is more than trainer.globalBatchSize {batch}; lower it")


def _recomputation_is_complete(spec: RLJobSpec) -> Iterator[Violation]:
    """Megatron-Core does not choose how to recompute (transformer/transformer_config.py:1154-1185)."""
    if not uses_megatron(spec):
        return
    view = effective(spec)
    for role in (ACTOR, CRITIC) if has_critic(spec) else (ACTOR,):
        section = f"{role}.megatron.override_transformer_config"
        names = ("recompute_granularity", "recompute_method", "recompute_num_layers")
        keys = {name: f"{section}.{name}" for name in names}
        granularity, method, layers = (view.value(key) for key in keys.values())
        field = view.field(keys["recompute_granularity"])
        if granularity not in (None, "full", "selective"):
            yield Violation(field, f"{granularity!s:.32} is neither full nor selective; use one of them")
        elif granularity is not None and method is not None and method not in RECOMPUTE_METHODS:
            yield Violation(
                view.field(keys["recompute_method"]), f"{method!s:.32} is neither block nor uniform; use one of them"
            )
        elif granularity == "full" and (method is None or layers is None):
            yield Violation(field, "full: set recompute_method to block or uniform, and recompute_num_layers, as well")
        elif granularity == "selective" and layers is not None:
            yield Violation(
                view.field(keys["recompute_num_layers"]), "is for recompute_granularity full only; remove it"
            )


def _experts_are_sequence_parallel(spec: RLJobSpec) -> Iterator[Violation]:
    """Layers of experts refuse to train over tensor ranks otherwise (transformer/moe/moe_layer.py:379-383)."""
    view, key, sizes = effective(spec), f"{ACTOR}.megatron.sequence_parallel", spec.trainer.parallelism
    experts = model_facts(spec).experts
    has_experts = sizes.expert > 1 or (experts is not None and experts.value > 0)
    if uses_megatron(spec) and sizes.tensor > 1 and has_experts and view.value(key) is False:
        yield Violation(
            view.field(key),
            f"false, but a model with experts over trainer.parallelism.tensor {sizes.tensor} needs it; remove it",
        )


def _data_parallel_ranks_have_experts(spec: RLJobSpec) -> Iterator[Violation]:
    """Weights are sent to every rank of a replica by itself, and ranks without experts all ask for the first one's.

    vLLM 0.23.0 lets each of them count itself as the only one (vllm/v1/engine/core.py:1157-1164), and verl 0.9.1 looks
    no further (workers/rollout/vllm_rollout/utils.py:54).
    """
    experts, ranks = model_facts(spec).experts, spec.rollout.parallelism.data
    if ranks > 1 and experts is not None and experts.value == 0:
        yield Violation(
            "spec.rollout.parallelism.data",
            f"{ranks}: all ranks of a model without experts ask for the weights of the first, and the first weight "
            "update fails (vLLM 0.23.0, verl 0.9.1); remove it, and the same devices run as many replicas",
        )


def _virtual_stages_have_stages(spec: RLJobSpec) -> Iterator[Violation]:
    """Stages are interleaved over several ranks (parallel_state.py:745-749)."""
    view, key = effective(spec), f"{ACTOR}.megatron.virtual_pipeline_model_parallel_size"
    if uses_megatron(spec) and spec.trainer.parallelism.pipeline == 1 and view.value(key) is not None:
        yield Violation(view.field(key), "requires trainer.parallelism.pipeline of 2 or more, but it is 1; remove it")


CHECKS: tuple[Check, ...] = (
    _rollout_has_its_sizes,
    _validation_can_be_sampled,
    _ulysses_is_packed,
    _passes_divide,
    _passes_hold_a_sequence,
    _passes_are_of_one_kind,
    _critic_updates_divide,
    _recomputation_is_complete,
    _experts_are_sequence_parallel,
    _data_parallel_ranks_have_experts,
    _virtual_stages_have_stages,
)
