"""Batches: prompts, samples, micro batches and tokens, and what an algorithm needs of them.

Paths and lines are those of verl 0.9.1, below verl/. Batches of a fixed size are those without maxTokensPerDevice
(`use_dynamic_bsz`).
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.arithmetic import divisors, next_factor, next_multiple
from rljob.core.validation.devices import devices_text
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.algorithms import WITH_CRITIC, WITH_FILTER, algorithm_of, has_critic
from rljob.launchers.verl.critic import critic_micro_batch
from rljob.launchers.verl.rows import SEPARATE
from rljob.launchers.verl.sizes import data_parallel_ranks, micro_batch, mini_batch, model_parallel, uses_megatron

PADDING_TOKENS = 128
"""Length of a sample that fills up a batch (trainer/ppo/padding_utils.py:42)."""


def _mini_batch_fits_the_batch(spec: RLJobSpec) -> Iterator[Violation]:
    """With batches of a fixed size verl refuses a mini batch that is larger (workers/config/actor.py:224-229)."""
    batch, mini = spec.trainer.global_batch_size, mini_batch(spec)
    if mini > batch and _sizes_are_fixed(spec) and not SEPARATE.holds(spec):
        yield Violation(
            "spec.trainer.miniBatchSize",
            f"{mini} is more than trainer.globalBatchSize {batch}; use one of {divisors(batch)}",
        )


def _updates_are_filled(spec: RLJobSpec) -> Iterator[Violation]:
    """Samples without effect fill a step up until updates divide it (trainer/ppo/v1/trainer_base.py:1589-1621)."""
    batch, mini = spec.trainer.global_batch_size, mini_batch(spec)
    if batch % mini and not SEPARATE.holds(spec):
        missing = (next_multiple(batch, mini) - batch) * spec.trainer.samples_per_prompt
        yield Violation(
            "spec.trainer.miniBatchSize",
            f"{mini} does not divide trainer.globalBatchSize {batch}: verl adds {missing} samples of {PADDING_TOKENS} "
            f"tokens without effect to each step; use one of {divisors(batch)}",
        )


def _batches_divide_over_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """Each rank trains on the same number of whole samples.

    Every update divides over the data-parallel ranks (workers/engine_workers.py:266-269). With batches of a fixed size
    the whole batch divides as well: over all devices with FSDP2, even where Ulysses groups them, and over the micro
    batches of all ranks with Megatron (utils/config.py:103-127).
    """
    if spec.trainer_group.devices % model_parallel(spec):
        return  # Reported by the checks of the parallel sizes.
    batch, mini, ranks = spec.trainer.global_batch_size, mini_batch(spec), data_parallel_ranks(spec)
    fixed, megatron = _sizes_are_fixed(spec), uses_megatron(spec)
    named = spec.trainer.mini_batch_size is not None
    uneven = tuple(_divides(spec, "miniBatchSize" if named else "globalBatchSize", mini, ranks, "data-parallel ranks"))
    if named or megatron or not fixed:
        yield from uneven
    if fixed and not megatron:
        yield from _divides(spec, "globalBatchSize", batch, spec.trainer_group.devices)
    elif fixed and not uneven and mini <= batch:
        micro = micro_batch(spec)
        over = f"data-parallel ranks with micro batches of {micro}"
        yield from _divides(spec, "globalBatchSize", batch, ranks * micro, over)


def _sizes_are_fixed(spec: RLJobSpec) -> bool:
    return spec.trainer.max_tokens_per_device is None


def _divides(spec: RLJobSpec, field: str, prompts: int, unit: int, ranks: str = "") -> Iterator[Violation]:
    samples = spec.trainer.samples_per_prompt
    if prompts * samples % unit:
        over = devices_text(spec, spec.trainer_group)
        if ranks:
            over = f"{data_parallel_ranks(spec)} {ranks}: {over} / {model_parallel(spec)} that share each sample"
        yield Violation(
            f"spec.trainer.{field}",
            f"{prompts} prompts × trainer.samplesPerPrompt {samples} = {prompts * samples} samples do not divide "
            f"over {over}; set {field} to {next_factor(prompts, samples, unit)}",
        )


def _micro_batches_divide(spec: RLJobSpec) -> Iterator[Violation]:
    """Passes of a fixed size divide a rank's share of an update (workers/engine/utils.py:122-128).

    The critic takes the same share in passes of its own size (trainer/ppo/v1/trainer_base.py:1804-1818).
    """
    ranks, samples = data_parallel_ranks(spec), mini_batch(spec) * spec.trainer.samples_per_prompt
    if spec.trainer_group.devices % model_parallel(spec) or samples % ranks or not _sizes_are_fixed(spec):
        return
    share, own = samples // ranks, spec.trainer.micro_batch_size_per_device
    sizes = {"trainer.microBatchSizePerDevice": own or 1}
    if has_critic(spec) and spec.critic and spec.critic.micro_batch_size_per_device:
        sizes["critic.microBatchSizePerDevice"] = critic_micro_batch(spec)
    for field, micro in sizes.items():
        if share % micro:
            yield Violation(
                f"spec.{field}",
                f"{micro} does not divide a device's {share} samples of a mini batch; use one of {divisors(share)}",
            )


def _tokens_hold_a_sequence(spec: RLJobSpec) -> Iterator[Violation]:
    """A sequence is never split over two passes, only over the devices that share it.

    verl asserts it for each batch, so the run ends with the first sequence that is too long (utils/seqlen_balancing.py
    :384-386; the bound times the size of the group: workers/engine/utils.py:108-111, with `sp_size` from
    workers/engine/fsdp/transformer_impl.py:726 and workers/engine/megatron/transformer_impl.py:836).
    """
    tokens, longest = spec.trainer.max_tokens_per_device, spec.data.max_prompt_tokens + spec.data.max_response_tokens
    sizes = spec.trainer.parallelism
    name, share = ("sequence", sizes.sequence) if not uses_megatron(spec) else ("context", sizes.context)
    if tokens is not None and tokens * share < longest:
        yield Violation(
            "spec.trainer.maxTokensPerDevice",
            f"{tokens} × parallelism.{name} {share} = {tokens * share} tokens cannot hold data.maxPromptTokens "
            f"{spec.data.max_prompt_tokens} + maxResponseTokens {spec.data.max_response_tokens} = {longest}; set it to "
            f"{-(-longest // share)} or more",
        )


def _samples_have_peers(spec: RLJobSpec) -> Iterator[Violation]:
    """A single response keeps its reward as advantage (trainer/ppo/core_algos.py:315-317,572-573,622-633)."""
    name, samples = spec.algorithm.name, spec.trainer.samples_per_prompt
    if samples < 2 and algorithm_of(spec).compares and spec.trainer.mode != "Evaluate":
        yield Violation(
            "spec.trainer.samplesPerPrompt",
            f"{samples}: {name} compares the responses of a prompt, and the advantage of a single one is its reward, "
            "without a baseline; use 2 or more (8 is usual)",
        )


def _parts_fit_the_algorithm(spec: RLJobSpec) -> Iterator[Violation]:
    """A part that only another algorithm reads is a mistake.

    The filter of groups is what the launcher makes of DAPO (`training.ALGORITHM_ROWS`).
    """
    name, row = spec.algorithm.name, algorithm_of(spec)
    for field, given, reads, wanted in (
        ("critic", spec.critic, row.critic, WITH_CRITIC),
        ("algorithm.gaeLambda", spec.algorithm.gae_lambda, row.critic, WITH_CRITIC),
        ("algorithm.groupFilter", spec.algorithm.group_filter, row.filters, WITH_FILTER),
    ):
        if given is not None and not reads:
            yield Violation(
                f"spec.{field}", f"requires algorithm.name {wanted}, but it is {name}; remove the field or set {wanted}"
            )


CHECKS: tuple[Check, ...] = (
    _mini_batch_fits_the_batch,
    _batches_divide_over_devices,
    _micro_batches_divide,
    _tokens_hold_a_sequence,
    _parts_fit_the_algorithm,
)
WARNINGS: tuple[Check, ...] = (_updates_are_filled, _samples_have_peers)
