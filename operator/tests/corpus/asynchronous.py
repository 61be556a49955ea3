"""What an asynchronous trainer cannot do, and settings of it that contradict each other."""

from __future__ import annotations

from corpus.bad import Bad, Json, key, merged, saved, trainer

COLOCATED: Json = trainer(mode="ColocateAsync")
SETTINGS = "spec.trainer.async"
CORRECTION = "algorithm.rollout_correction"
LORA = "actor_rollout_ref.model"
WITH, OR_SYNC = "with trainer.mode ColocateAsync", "or set trainer.mode to Sync"
PAUSED = (
    f"LateBinding, but {WITH} a pause ends every request before its response has ended, and late binding learns the "
    f"lengths of responses when requests end; use Auto, {OR_SYNC}"
)


def ahead(**settings: object) -> Json:
    return trainer(mode="ColocateAsync", **{"async": settings})


def colocated(change: Json) -> Json:
    return merged(COLOCATED, change)


BAD = {
    "settings without the mode": Bad(
        trainer(**{"async": {"maxStaleness": 3}}),
        SETTINGS,
        "requires trainer.mode ColocateAsync or SeparateAsync, but it is Sync; set the mode, or remove async",
    ),
    "settings of an evaluation": Bad(
        trainer(mode="Evaluate", **{"async": {}}),
        SETTINGS,
        "requires trainer.mode ColocateAsync or SeparateAsync, but it is Evaluate",
    ),
    "a bound below the window": Bad(
        ahead(prefetchBatches="3", maxStaleness=1),
        f"{SETTINGS}.maxStaleness",
        "1 is below prefetchBatches 3: a prompt waits 3 steps for its turn, so training would wait for each; use at "
        "least 3",
    ),
    "a bound that drops a part of the window": Bad(
        ahead(prefetchBatches="1.5", maxStaleness=1, stale="Drop"),
        f"{SETTINGS}.maxStaleness",
        "1 is below prefetchBatches 1.5: a prompt waits 2 steps for its turn, so every batch would be dropped; use at "
        "least 2",
    ),
    "too large a window": Bad(
        ahead(prefetchBatches="17", maxStaleness=1), f"{SETTINGS}.prefetchBatches", "17 must be at most 16; 1 is usual"
    ),
    "a window that is no number": Bad(
        ahead(prefetchBatches="1e400"), f"{SETTINGS}.prefetchBatches", "1e400 is too large for a number; 1 is usual"
    ),
    "weights of nothing": Bad(
        ahead(correctionThreshold="0"), f"{SETTINGS}.correctionThreshold", "0 must be above 0; 2 is usual"
    ),
    "a baseline of other weights": Bad(
        colocated({"algorithm": {"name": "ReMax"}}),
        "spec.algorithm.name",
        f"ReMax compares a response with a greedy one of the same weights, and {WITH} both may be of different ones; "
        f"use GRPO or RLOO, {OR_SYNC}",
    ),
    "ratios that are not 1": Bad(
        colocated({"optimizations": {"skipOldLogProb": "Enabled"}}),
        "spec.optimizations.skipOldLogProb",
        f"Enabled, but {WITH} responses come from older weights: the ratio is not 1; set it to Auto",
    ),
    "late binding of paused requests": Bad(
        colocated({"optimizations": {"loadBalancer": "LateBinding"}}), "spec.optimizations.loadBalancer", PAUSED
    ),
    "an order for steps that end with their longest response": Bad(
        colocated({"optimizations": {"promptOrder": "LengthAware"}}),
        "spec.optimizations.promptOrder",
        f"LengthAware puts responses of similar length into one step, and {WITH} no step waits for its own longest",
    ),
    "other data under prompts in flight": Bad(
        colocated(saved({"data": "NewEpoch"})),
        "spec.checkpoint.data",
        f"NewEpoch, but {WITH} a checkpoint has prompts of its own data in flight; use Same, {OR_SYNC}",
    ),
    "a history of paused responses": Bad(
        colocated({"rollout": {"speculative": {"method": "Suffix", "history": "Enabled"}}}),
        "spec.rollout.speculative.history",
        f"Enabled, but {WITH} a paused response resumes as a longer prompt, of which the history knows nothing; remove",
    ),
    "an adapter beside the weights": Bad(
        colocated(key(f"{LORA}.lora_rank", 8)),
        f"spec.verl.overrides[{LORA}.lora_rank]",
        f"trains a LoRA adapter that is sent beside the weights, which {WITH} is not supported; set "
        f"spec.verl.overrides[{LORA}.lora.merge] to true, {OR_SYNC}",
    ),
    "a judge on the trainer's devices": Bad(
        colocated(merged(key("reward.reward_model.enable", True), key("reward.reward_model.model_path", "/judge"))),
        "spec.verl.overrides[reward.reward_model.enable]",
        f"true, and the reward model shares the devices of the trainer, which {WITH} is not supported",
    ),
    "a sampler that counts no prompts": Bad(
        colocated(key("trainer.v1.sampler.custom_sampler", {"path": "/code/sampler.py", "name": "Mine"})),
        "spec.verl.overrides[trainer.v1.sampler.custom_sampler]",
        f"a sampler of its own chooses prompts that are not counted, which {WITH} is not supported; remove it",
    ),
    "responses that are replayed": Bad(
        colocated(key("skip.rollout_tq.enable", True)),
        "spec.verl.overrides[skip.rollout_tq.enable]",
        "recorded responses are replayed without their prompts",
    ),
    "a correction without its weights": Bad(
        colocated(key(f"{CORRECTION}.bypass_mode", True)),
        f"spec.verl.overrides[{CORRECTION}.bypass_mode]",
        "true, so verl computes no weights for trainer.async.correction Token; set it to false, or correction to None",
    ),
    "a correction in two places": Bad(
        colocated(key(CORRECTION, {"rollout_is": "sequence"})),
        f"spec.verl.overrides[{CORRECTION}]",
        "is set by spec.trainer.async.correction; set it there",
    ),
    "a bound of a synchronous job": Bad(
        key("trainer.v1.sampler.max_off_policy_threshold", 2),
        "spec.verl.overrides[trainer.v1.sampler.max_off_policy_threshold]",
        "is set by spec.trainer.async.maxStaleness; set it there",
    ),
}
