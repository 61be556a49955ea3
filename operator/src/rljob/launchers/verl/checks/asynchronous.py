"""Asynchronous training: bounds that hold together, and what an asynchronous trainer cannot do.

Switches of `spec.optimizations` are judged beside their decisions (launchers/verl/optimizations). Lines are those of
verl 0.9.1, below verl/.
"""

from __future__ import annotations

from collections.abc import Iterator

from rljob.api.training import ASYNC_MODES, AlgorithmName
from rljob.api.v1alpha1 import RLJobSpec
from rljob.core.validation.arithmetic import divisors
from rljob.core.validation.violation import Check, Violation
from rljob.launchers.verl.asynchronous import CORRECTION, PREFETCH_MAX, settings, waiting_steps, with_mode
from rljob.launchers.verl.effective import effective
from rljob.launchers.verl.rows import ASYNC, MODEL, SEPARATE
from rljob.launchers.verl.sizes import mini_batch
from rljob.launchers.verl.trained import trained
from rljob.launchers.verl.values import OFF
from rljob_runtime.planning.on_policy import is_on

FIELD = "spec.trainer.async"
OR_SYNC = "or set trainer.mode to Sync"
BYPASS = f"{CORRECTION}.bypass_mode"
JUDGE = "reward.reward_model"
UNSUPPORTED = {
    "trainer.v1.sampler.custom_sampler.path": "a sampler of its own chooses prompts that are not counted",
    "skip.rollout_tq.enable": "recorded responses are replayed without their prompts, which are then not counted",
}
"""Switches of verl with which the account of prompts in a checkpoint would be wrong. The launcher refuses them as well
(rljob_runtime.verl_plugin.async_settings)."""


def _settings_belong_to_a_mode(spec: RLJobSpec) -> Iterator[Violation]:
    """The settings of another mode would have no effect."""
    if spec.trainer.async_ is not None and not ASYNC.holds(spec):
        yield Violation(
            FIELD,
            f"requires trainer.mode {' or '.join(ASYNC_MODES)}, but it is {spec.trainer.mode}; set the mode, or remove "
            "async (that of a recipe by spec.unset)",
        )


def _prompts_are_trained_in_time(spec: RLJobSpec) -> Iterator[Violation]:
    """A prompt is in flight for as many steps as there are batches before it (trainer/ppo/v1/replay_buffer.py:388)."""
    if not ASYNC.holds(spec):
        return
    asked, waits = settings(spec), waiting_steps(spec)
    # A number beyond its bound is reported by `numbers`.
    if asked.max_staleness < waits and float(asked.prefetch_batches) <= PREFETCH_MAX:
        effect = "every batch would be dropped" if asked.stale == "Drop" else "training would wait for each"
        yield Violation(
            f"{FIELD}.maxStaleness",
            f"{asked.max_staleness} is below prefetchBatches {asked.prefetch_batches}: a prompt waits {waits} "
            f"steps for its turn, so {effect}; use at least {waits}",
        )


def _baselines_have_one_version(spec: RLJobSpec) -> Iterator[Violation]:
    """ReMax compares a response with a greedy one, which other weights may have generated."""
    if ASYNC.holds(spec) and spec.algorithm.name is AlgorithmName.REMAX:
        yield Violation(
            "spec.algorithm.name",
            f"ReMax compares a response with a greedy one of the same weights, and {with_mode(spec)} both may be of "
            f"different ones; use GRPO or RLOO, {OR_SYNC}",
        )


def _drafts_have_no_history(spec: RLJobSpec) -> Iterator[Violation]:
    """A paused request resumes as a longer prompt (workers/rollout/llm_server.py:291-299)."""
    if ASYNC.holds(spec) and spec.rollout.speculative.history == "Enabled":
        yield Violation(
            "spec.rollout.speculative.history",
            f"Enabled, but {with_mode(spec)} a paused response resumes as a longer prompt, of which the history knows "
            f"nothing; remove it, {OR_SYNC}",
        )


def _adapters_are_merged(spec: RLJobSpec) -> Iterator[Violation]:
    """An adapter that is sent by itself takes another way than whole weights (workers/engine_workers.py:757-805)."""
    what = trained(spec)
    if ASYNC.holds(spec) and what.field is not None and not what.merged:
        yield Violation(
            what.field,
            f"trains a LoRA adapter that is sent beside the weights, which {with_mode(spec)} is not supported; set "
            f"spec.verl.overrides[{MODEL}.lora.merge] to true, {OR_SYNC}",
        )


def _judges_have_their_own_devices(spec: RLJobSpec) -> Iterator[Violation]:
    """It scores while the rollout sleeps, after the batch was chosen (trainer/ppo/v1/trainer_base.py:577-579)."""
    seen = effective(spec)
    if (
        ASYNC.holds(spec)
        and is_on(seen.value(f"{JUDGE}.enable"))
        and not is_on(seen.value(f"{JUDGE}.enable_resource_pool"))
    ):
        yield Violation(
            seen.field(f"{JUDGE}.enable"),
            f"true, and the reward model shares the devices of the trainer, which {with_mode(spec)} is not supported; "
            f"use reward.judge, with a group of role Judge, {OR_SYNC}",
        )


def _prompts_are_counted(spec: RLJobSpec) -> Iterator[Violation]:
    """Each checkpoint has an account of the prompts in flight, from which a restart continues."""
    seen = effective(spec)
    for key, reason in UNSUPPORTED.items() if ASYNC.holds(spec) else ():
        setting = seen.setting(key)
        if setting is not None and setting.value not in OFF:
            yield Violation(setting.field, f"{reason}, which {with_mode(spec)} is not supported; remove it, {OR_SYNC}")


def _corrections_are_computed(spec: RLJobSpec) -> Iterator[Violation]:
    """Weights need the pass that bypass mode leaves out (trainer/ppo/v1/trainer_base.py:1640-1649, 1768-1771)."""
    seen = effective(spec)
    if ASYNC.holds(spec) and settings(spec).correction != "None" and is_on(seen.value(BYPASS)):
        yield Violation(
            seen.field(BYPASS),
            f"true, so verl computes no weights for trainer.async.correction {settings(spec).correction}; set it to "
            "false, or correction to None",
        )


def _steps_are_whole_mini_batches(spec: RLJobSpec) -> Iterator[Violation]:
    """A step trains mini batches one by one (trainer/ppo/v1/trainer_separate_async.py:59-63)."""
    batch, mini = spec.trainer.global_batch_size, mini_batch(spec)
    if SEPARATE.holds(spec) and batch % mini:
        yield Violation(
            "spec.trainer.miniBatchSize",
            f"{mini} does not divide trainer.globalBatchSize {batch}, and {with_mode(spec)} a step has whole mini "
            f"batches only; use one of {divisors(batch)}",
        )


def _stale_responses_are_corrected(spec: RLJobSpec) -> Iterator[Violation]:
    """In bypass mode the ratio itself is that to the weights that generated, and its clip bounds the difference."""
    if ASYNC.holds(spec) and settings(spec).correction == "None" and not is_on(effective(spec).value(BYPASS)):
        yield Violation(
            f"{FIELD}.correction",
            "None: responses of older weights are trained as if the present weights had generated them. NeMo-RL's "
            "asynchronous GRPO collapsed after a few hundred steps without a correction (NVIDIA-NeMo/RL#1098); "
            "use Token",
        )


def _filters_count_prompts(spec: RLJobSpec) -> Iterator[Violation]:
    """Only the synchronous sampler reads it (trainer/ppo/v1/replay_buffer.py:445-447)."""
    group_filter = spec.algorithm.group_filter
    if ASYNC.holds(spec) and group_filter is not None and group_filter.max_inflight_batches is not None:
        yield Violation(
            "spec.algorithm.groupFilter.maxInflightBatches",
            f"{group_filter.max_inflight_batches} has no effect {with_mode(spec)}, which replaces each filtered prompt "
            "at once; remove it (trainer.async.prefetchBatches bounds the prompts in flight)",
        )


def _prompts_in_flight_are_of_one_data(spec: RLJobSpec) -> Iterator[Violation]:
    """A step holds prompts in flight, which a new epoch of other data would still train."""
    if ASYNC.holds(spec) and spec.checkpoint is not None and spec.checkpoint.data != "Same":
        yield Violation(
            "spec.checkpoint.data",
            f"{spec.checkpoint.data}, but {with_mode(spec)} a checkpoint has prompts of its own data in flight; use "
            f"Same, {OR_SYNC}",
        )


CHECKS: tuple[Check, ...] = (
    _settings_belong_to_a_mode,
    _prompts_are_trained_in_time,
    _baselines_have_one_version,
    _drafts_have_no_history,
    _adapters_are_merged,
    _judges_have_their_own_devices,
    _prompts_are_counted,
    _corrections_are_computed,
    _steps_are_whole_mini_batches,
    _prompts_in_flight_are_of_one_data,
)
WARNINGS: tuple[Check, ...] = (_stale_responses_are_corrected, _filters_count_prompts)
