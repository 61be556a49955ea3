"""Decimal numbers, whose value the schema does not check: each bound with the line of code that sets it.

verl is 0.9.1, below verl/; vLLM is 0.23.0, below vllm/; Megatron-Core is 0.16.1. A factor that none of them checks has
no bound here: the clip ratios are thresholds of divergence or of a truncated weight in other losses than PPO's
(trainer/ppo/core_algos.py:1413-1428,2065-2079), so neither 0 nor a value above 1 is a mistake.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.asynchronous import PREFETCH_MAX
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.sizes import uses_megatron

TEMPERATURE_MIN = 0.01
"""Below it vLLM samples at 0.01 (vllm/sampling_params.py:27,429-437), and at 0 greedily (:470), but the trainer divides
logits by the given value, or by 1e-8 (verl/workers/engine/fsdp/transformer_impl.py:98-103). The responses are then not
those of the policy that it trains, and no error says so."""


@dataclass(frozen=True)
class Bound:
    """The allowed range of a decimal number."""

    field: str
    value: Callable[[RLJobSpec], str | None]
    above: float = -math.inf
    at_least: float = -math.inf
    at_most: float = math.inf
    hint: str = "use one such as 1e-6"
    when: Callable[[RLJobSpec], bool] = lambda _: True


def _prefetch_batches(spec: RLJobSpec) -> str | None:
    return spec.trainer.async_.prefetch_batches if spec.trainer.async_ else None


def _correction_threshold(spec: RLJobSpec) -> str | None:
    return spec.trainer.async_.correction_threshold if spec.trainer.async_ else None


BOUNDS = (
    Bound("algorithm.klCoefficient", lambda s: s.algorithm.kl_coefficient),
    Bound("algorithm.clipRatioLow", lambda s: s.algorithm.clip_ratio_low, hint="0.2 is usual"),
    Bound("algorithm.clipRatioHigh", lambda s: s.algorithm.clip_ratio_high, hint="0.2 is usual"),
    Bound("algorithm.entropyCoefficient", lambda s: s.algorithm.entropy_coefficient),
    # A power of it for each token: above 1 returns grow without bound (trainer/ppo/core_algos.py:250-252).
    Bound("algorithm.discount", lambda s: s.algorithm.discount, at_most=1, hint="1 is usual"),
    Bound("algorithm.gaeLambda", lambda s: s.algorithm.gae_lambda, at_most=1, hint="1 is usual"),
    # 0 is no error of torch, and trains nothing.
    Bound("critic.learningRate", lambda s: s.critic.learning_rate if s.critic else None, above=0),
    Bound("trainer.learningRate", lambda s: s.trainer.learning_rate, above=0),
    # torch scales gradients to this norm, so 0 removes them; Megatron-Core takes 0 as no clipping
    # (verl/workers/engine/fsdp/transformer_impl.py:805-812; megatron/core/optimizer/optimizer.py:606).
    Bound(
        "trainer.gradientClip",
        lambda s: s.trainer.gradient_clip,
        above=0,
        hint="1 is usual",
        when=lambda s: not uses_megatron(s),
    ),
    Bound("trainer.gradientClip", lambda s: s.trainer.gradient_clip, hint="1 is usual", when=uses_megatron),
    Bound("trainer.async.prefetchBatches", _prefetch_batches, at_most=PREFETCH_MAX, hint="1 is usual"),
    # verl/trainer/ppo/rollout_corr_helper.py:121-122.
    Bound("trainer.async.correctionThreshold", _correction_threshold, above=0, hint="2 is usual"),
    # vllm/config/cache.py:67.
    Bound(
        "rollout.memoryFraction", lambda s: s.rollout.memory_fraction, above=0, at_most=1, hint="0.5 to 0.9 is usual"
    ),
    Bound(
        "reward.judge.memoryFraction",
        lambda s: s.reward.judge.memory_fraction if s.reward.judge else None,
        above=0,
        at_most=1,
        hint="0.8 is usual",
    ),
    Bound("rollout.temperature", lambda s: s.rollout.temperature, at_least=TEMPERATURE_MIN, hint="1 is usual"),
    # vllm/sampling_params.py:517.
    Bound("rollout.topP", lambda s: s.rollout.top_p, above=0, at_most=1, hint="1 is usual"),
)


def _numbers_are_in_bounds(spec: RLJobSpec) -> Iterator[Violation]:
    """The schema checks the format of a decimal number, not its value."""
    for bound in BOUNDS:
        text = bound.value(spec)
        if text is None or not bound.when(spec):
            continue
        if (problem := _problem(float(text), bound)) is not None:
            yield Violation(f"spec.{bound.field}", f"{text} {problem}; {bound.hint}")


def _problem(number: float, bound: Bound) -> str | None:
    if not math.isfinite(number):
        return "is too large for a number"
    if number <= bound.above:
        return f"must be above {bound.above:g}"
    if number < bound.at_least:
        return f"must be at least {bound.at_least:g}"
    if number > bound.at_most:
        return f"must be at most {bound.at_most:g}"
    return None


def _engine_takes_a_share(spec: RLJobSpec) -> Iterator[Violation]:
    """The bound of rollout.memoryFraction holds for vLLM's own argument as well (vllm/config/cache.py:67)."""
    given = effective(spec).engine("gpu_memory_utilization")
    if given is not None and given.by_override and isinstance(given.value, float | int) and not 0 < given.value <= 1:
        yield Violation(given.field, f"{given.value} is not above 0 and at most 1; use spec.rollout.memoryFraction")


CHECKS: tuple[Check, ...] = (_numbers_are_in_bounds, _engine_takes_a_share)
