"""With what settings the pass for old log-probabilities is needed."""

from __future__ import annotations

import pytest

from rljob_runtime.planning.on_policy import Obstacle, is_random, obstacles

ACTOR, MODEL = "actor_rollout_ref.actor", "actor_rollout_ref.model"
BATCH, MINI = "data.train_batch_size", f"{ACTOR}.ppo_mini_batch_size"
PLAIN: dict[str, object] = {
    BATCH: 32,
    MINI: 32,
    f"{ACTOR}.ppo_epochs": 1,
    "trainer.v1.trainer_mode": "sync",
    "algorithm.adv_estimator": "grpo",
    "algorithm.use_kl_in_reward": False,
    "algorithm.rollout_correction.bypass_mode": False,
    "algorithm.rollout_correction.rollout_is": None,
    "algorithm.rollout_correction.rollout_rs": None,
    f"{ACTOR}.megatron.router_replay.mode": "disabled",
    f"{ACTOR}.qat.enable": False,
    f"{ACTOR}.qat.mode": "w4a16",
    "distillation.enabled": False,
}


def found(**settings: object) -> list[Obstacle]:
    values = PLAIN | {key.replace("__", "."): value for key, value in settings.items()}
    return list(
        obstacles(values.get, lambda section: [(k, v) for k, v in values.items() if k.startswith(f"{section}.")])
    )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        # A larger mini batch than the batch is filled up to one update (trainer_base.py:1577-1592).
        {MINI: 64},
        {"trainer.v1.trainer_mode": "rljob_sync"},
        {f"{MODEL}.override_config.attention_dropout": 0.0, f"{MODEL}.lora.dropout": "0", f"{MODEL}.lora.rank": 8},
        {f"{ACTOR}.megatron.override_transformer_config.moe_token_drop_policy": "probs"},
        # Scales of weights alone are the same in both passes.
        {f"{ACTOR}.qat.enable": True},
        # Keys that verl's configuration has for another engine only.
        {f"{ACTOR}.megatron.router_replay.mode": object(), f"{ACTOR}.ppo_epochs": object(), MINI: None, BATCH: "many"},
        {MINI: "inf"},
    ],
)
def test_one_update_of_a_batch_needs_no_old_log_probabilities(settings: dict[str, object]) -> None:
    assert found(**settings) == []


@pytest.mark.parametrize(
    ("settings", "key", "reason"),
    [
        ({MINI: 8}, MINI, "4 updates of a batch"),
        ({MINI: 31}, MINI, "2 updates of a batch"),
        ({f"{ACTOR}.ppo_epochs": 2}, f"{ACTOR}.ppo_epochs", "trained more than once"),
        ({"trainer.v1.trainer_mode": "separate_async"}, "trainer.v1.trainer_mode", "older weights"),
        ({"algorithm.rollout_correction.bypass_mode": True}, "algorithm.rollout_correction.bypass_mode", "no pass"),
        ({"algorithm.rollout_correction.rollout_is": "token"}, "algorithm.rollout_correction.rollout_is", "importance"),
        (
            {"algorithm.rollout_correction.rollout_rs": "seq_max_k2"},
            "algorithm.rollout_correction.rollout_rs",
            "rejection",
        ),
        ({"algorithm.use_kl_in_reward": "True"}, "algorithm.use_kl_in_reward", "KL penalty"),
        ({"algorithm.adv_estimator": "optimal_token_baseline"}, "algorithm.adv_estimator", "advantage estimator"),
        ({f"{ACTOR}.megatron.router_replay.mode": "R2"}, f"{ACTOR}.megatron.router_replay.mode", "router replay"),
        ({"distillation.enabled": True}, "distillation.enabled", "distillation"),
        ({f"{ACTOR}.qat.enable": True, f"{ACTOR}.qat.mode": "w4a4"}, f"{ACTOR}.qat.mode", "activations"),
        ({f"{MODEL}.override_config.resid_pdrop": 0.1}, f"{MODEL}.override_config.resid_pdrop", "resid_pdrop 0.1"),
        ({f"{MODEL}.lora.dropout": "0.05"}, f"{MODEL}.lora.dropout", "dropout 0.05"),
        (
            {f"{ACTOR}.megatron.override_transformer_config.moe_input_jitter_eps": 0.01},
            f"{ACTOR}.megatron.override_transformer_config.moe_input_jitter_eps",
            "moe_input_jitter_eps 0.01",
        ),
    ],
)
def test_what_makes_the_ratio_differ_from_one(settings: dict[str, object], key: str, reason: str) -> None:
    (one,) = found(**settings)
    assert one.key == key
    assert reason in one.reason
    assert one.fix


def test_everything_is_found_at_once() -> None:
    several = {MINI: 8, f"{ACTOR}.ppo_epochs": 2, "distillation.enabled": True, f"{MODEL}.lora.dropout": 0.1}
    assert len(found(**several)) == len(several)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("attention_dropout", 0.1, True),
        ("router_jitter_noise", 0.01, True),
        ("attention_dropout", 0, False),
        ("attention_dropout", None, False),
        ("attention_dropout", True, False),
        ("dropout_position", 1, False),
        ("hidden_size", 64, False),
    ],
)
def test_what_is_random_in_a_model(key: str, value: object, expected: bool) -> None:
    assert is_random(key, value) is expected
