"""Switches of spec.optimizations that cannot be on."""

from __future__ import annotations

from corpus.bad import Bad, Json, key, megatron, merged, trainer

SKIP, SLEEP = "spec.optimizations.skipOldLogProb", "spec.optimizations.sleepLevel"
AUTO = f"or set {SKIP} to Auto"
REPLAY = "actor_rollout_ref.actor.megatron.router_replay.mode"


def skips(change: Json) -> Json:
    return merged({"optimizations": {"skipOldLogProb": "Enabled"}}, change)


def discards(change: Json) -> Json:
    return merged({"optimizations": {"sleepLevel": 2}}, change)


BAD = {
    "skipOldLogProb with several updates": Bad(
        skips(trainer(miniBatchSize=8)),
        SKIP,
        "4 updates of a batch: the ratio is not 1 after the first (spec.trainer.miniBatchSize); raise it to 32 "
        f"prompts, one update of a batch, {AUTO}",
    ),
    "skipOldLogProb with several epochs": Bad(
        skips(key("actor_rollout_ref.actor.ppo_epochs", 2)),
        SKIP,
        "a batch is trained more than once: the ratio is not 1 after the first "
        f"(spec.verl.overrides[actor_rollout_ref.actor.ppo_epochs]); set it to 1, {AUTO}",
    ),
    "skipOldLogProb with rollout importance sampling": Bad(
        skips(key("algorithm.rollout_correction", {"rollout_is": "token"})),
        SKIP,
        "rollout importance sampling weighs by the old log-probabilities "
        f"(spec.verl.overrides[algorithm.rollout_correction]); set it to null, {AUTO}",
    ),
    "skipOldLogProb with router replay": Bad(
        skips(merged(megatron({}), key(REPLAY, "R3"))),
        SKIP,
        "the pass for old log-probabilities takes part in router replay "
        f"(spec.verl.overrides[{REPLAY}]); set it to disabled, {AUTO}",
    ),
    "sleepLevel with an adapter": Bad(
        discards(key("actor_rollout_ref.model.lora_rank", 8)),
        SLEEP,
        "2 discards the weights below LoRA's adapter, and only the adapter is sent again "
        "(spec.verl.overrides[actor_rollout_ref.model.lora_rank]); set it to 1",
    ),
    "sleepLevel with a drafter": Bad(
        discards(key("actor_rollout_ref.model.mtp", {"enable": True, "enable_rollout": True})),
        SLEEP,
        "2 discards the drafter's weights, which are not sent again "
        "(spec.verl.overrides[actor_rollout_ref.model.mtp]); set it to 1",
    ),
}
