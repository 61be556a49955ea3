"""Batches and the algorithm: prompts, samples, micro batches, tokens and the numbers of the update.

Sources: verl 0.9.1, verl/utils/config.py (validate_config), verl/workers/engine_workers.py (a mini batch divides over
the data-parallel ranks), verl/utils/seqlen_balancing.py (a dynamic micro batch holds at least one sequence).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rljob.api.training import AlgorithmName
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.arithmetic import divisors, next_factor
from rljob.core.validation.devices import devices_text
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.sizes import data_parallel_ranks, mini_batch, model_parallel, uses_megatron

COMPARES_SAMPLES = frozenset({AlgorithmName.GRPO, AlgorithmName.DAPO, AlgorithmName.RLOO})
"""Algorithms whose baseline comes from the other responses to the prompt: verl/trainer/ppo/core_algos.py."""


def _mini_batch_divides(spec: RLJobSpec) -> Iterator[Violation]:
    """Every optimizer update of a step uses the same number of prompts."""
    batch, mini = spec.trainer.global_batch_size, mini_batch(spec)
    if batch % mini:
        yield Violation(
            "spec.trainer.miniBatchSize",
            f"{mini} does not divide trainer.globalBatchSize {batch}; use one of {divisors(batch)}",
        )


def _batches_divide_over_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """Each rank trains on the same number of whole samples."""
    if spec.devices % model_parallel(spec):
        return  # Reported by the checks of the parallel sizes.
    ranks = data_parallel_ranks(spec)
    fixed = not uses_megatron(spec) and spec.trainer.max_tokens_per_device is None
    # With batches of a fixed size verl requires a share per device even where Ulysses groups devices.
    yield from _divides(spec, "globalBatchSize", spec.trainer.global_batch_size, spec.devices if fixed else ranks)
    if spec.trainer.mini_batch_size is not None:
        yield from _divides(spec, "miniBatchSize", spec.trainer.mini_batch_size, ranks)


def _divides(spec: RLJobSpec, field: str, prompts: int, ranks: int) -> Iterator[Violation]:
    samples = spec.trainer.samples_per_prompt
    if prompts * samples % ranks:
        over = devices_text(spec)
        if ranks != spec.devices:
            over = f"{ranks} data-parallel ranks: {over} / {model_parallel(spec)} that share each sample"
        yield Violation(
            f"spec.trainer.{field}",
            f"{prompts} prompts × trainer.samplesPerPrompt {samples} = {prompts * samples} samples do not divide "
            f"over {over}; set {field} to {next_factor(prompts, samples, ranks)}",
        )


def _micro_batch_divides(spec: RLJobSpec) -> Iterator[Violation]:
    """Passes of a fixed size divide a rank's share evenly; with maxTokensPerDevice verl splits by tokens."""
    ranks, micro = data_parallel_ranks(spec), spec.trainer.micro_batch_size_per_device
    samples = mini_batch(spec) * spec.trainer.samples_per_prompt
    uneven = spec.devices % model_parallel(spec) or samples % ranks
    if uneven or micro is None or spec.trainer.max_tokens_per_device is not None:
        return
    share = samples // ranks
    if share % micro:
        yield Violation(
            "spec.trainer.microBatchSizePerDevice",
            f"{micro} does not divide a device's {share} samples of a mini batch; use one of {divisors(share)}",
        )


def _tokens_hold_a_sequence(spec: RLJobSpec) -> Iterator[Violation]:
    """A sequence is never split over two passes, only over the devices that share it."""
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
    """A single response has no other to be compared with."""
    name, samples = spec.algorithm.name, spec.trainer.samples_per_prompt
    if samples < 2 and name in COMPARES_SAMPLES and spec.trainer.mode == "Train":
        yield Violation(
            "spec.trainer.samplesPerPrompt",
            f"{samples}: {name} compares the responses of a prompt, so the advantage of a single one is always 0; "
            "use 2 or more (8 is usual)",
        )


def _parts_fit_the_algorithm(spec: RLJobSpec) -> Iterator[Violation]:
    """A part that only another algorithm reads is a mistake."""
    name = spec.algorithm.name
    for field, given, wanted in (
        ("critic", spec.critic, AlgorithmName.PPO),
        ("algorithm.gaeLambda", spec.algorithm.gae_lambda, AlgorithmName.PPO),
        ("algorithm.groupFilter", spec.algorithm.group_filter, AlgorithmName.DAPO),
    ):
        if given is not None and name is not wanted:
            yield Violation(
                f"spec.{field}", f"requires algorithm.name {wanted}, but it is {name}; remove the field or set {wanted}"
            )


@dataclass(frozen=True)
class Bound:
    """The allowed range of a decimal number."""

    field: str
    value: Callable[[RLJobSpec], str | None]
    above: float = -math.inf
    at_most: float = math.inf
    hint: str = "use one such as 1e-6"


BOUNDS = (
    Bound("algorithm.klCoefficient", lambda s: s.algorithm.kl_coefficient),
    Bound("algorithm.clipRatioLow", lambda s: s.algorithm.clip_ratio_low, 0, 1, "0.2 is usual"),
    Bound("algorithm.clipRatioHigh", lambda s: s.algorithm.clip_ratio_high, 0, math.inf, "0.2 is usual"),
    Bound("algorithm.entropyCoefficient", lambda s: s.algorithm.entropy_coefficient),
    Bound("algorithm.discount", lambda s: s.algorithm.discount, 0, 1, "1 is usual"),
    Bound("algorithm.gaeLambda", lambda s: s.algorithm.gae_lambda, -math.inf, 1, "1 is usual"),
    Bound("critic.learningRate", lambda s: s.critic.learning_rate if s.critic else None, 0),
    Bound("trainer.learningRate", lambda s: s.trainer.learning_rate, 0),
    Bound("trainer.gradientClip", lambda s: s.trainer.gradient_clip, 0, math.inf, "1 is usual"),
    Bound("rollout.memoryFraction", lambda s: s.rollout.memory_fraction, 0, 1, "0.5 to 0.9 is usual"),
    Bound("rollout.temperature", lambda s: s.rollout.temperature, 0, math.inf, "1 is usual"),
    Bound("rollout.topP", lambda s: s.rollout.top_p, 0, 1, "1 is usual"),
)


def _numbers_are_in_bounds(spec: RLJobSpec) -> Iterator[Violation]:
    """The schema checks the format of a decimal number, not its value."""
    for bound in BOUNDS:
        text = bound.value(spec)
        if text is None:
            continue
        number, field = float(text), f"spec.{bound.field}"
        if not math.isfinite(number):
            yield Violation(field, f"{text} is too large for a number; {bound.hint}")
        elif number <= bound.above:
            yield Violation(field, f"{text} must be above {bound.above:g}; {bound.hint}")
        elif number > bound.at_most:
            yield Violation(field, f"{text} must be at most {bound.at_most:g}; {bound.hint}")


CHECKS: tuple[Check, ...] = (
    _mini_batch_divides,
    _batches_divide_over_devices,
    _micro_batch_divides,
    _tokens_hold_a_sequence,
    _samples_have_peers,
    _parts_fit_the_algorithm,
    _numbers_are_in_bounds,
)
