"""Megatron's learning-rate schedule over restarts."""

from __future__ import annotations

import pytest
from builders import Json, merged, saving, small_spec, typed

from rljob.launchers.verl.job import overrides

MEGATRON = {"trainer": {"backend": "Megatron"}}
SAVES = {"checkpoint": {"path": "/data/saves", "everySteps": 5}}
WARMUP = {"verl": {"overrides": {"actor_rollout_ref.actor.optim.lr_warmup_steps": 5}}}
DECAY = {"verl": {"overrides": {"critic.optim": {"lr_decay_style": "cosine"}}}}
PPO = {"algorithm": {"name": "PPO"}}
KEY = "optim.use_checkpoint_opt_param_scheduler"


@pytest.mark.parametrize(
    ("change", "keys"),
    [
        (merged(saving(SAVES), MEGATRON, WARMUP), [f"actor_rollout_ref.actor.{KEY}"]),
        (merged(saving(SAVES), MEGATRON, PPO, DECAY), [f"critic.{KEY}"]),
        (merged(saving(SAVES), MEGATRON, DECAY), []),
        (merged(saving(SAVES), MEGATRON), []),
        (merged(saving(SAVES), WARMUP), []),
        (merged(MEGATRON, WARMUP), []),
        # The schedule of the other job has another rate.
        (merged(saving({"checkpoint": SAVES["checkpoint"] | {"from": {"path": "/data/a"}}}), MEGATRON, WARMUP), []),
    ],
)
def test_a_restart_goes_on_in_the_schedule(change: Json, keys: list[str]) -> None:
    rendered = overrides(typed(small_spec(change)))
    assert [key for key, value in rendered.items() if key.endswith(KEY) and value is True] == keys
