"""How many calls a replica has to take at a time."""

from __future__ import annotations

from types import SimpleNamespace

from rljob_runtime.verl_plugin.replica import CONTROL_CALLS, Load, requests_of


def config(prompts: int, samples: int, validated: int = 1) -> SimpleNamespace:
    rollout = SimpleNamespace(n=samples, val_kwargs=SimpleNamespace(n=validated))
    data = SimpleNamespace(train_batch_size=prompts)
    return SimpleNamespace(data=data, actor_rollout_ref=SimpleNamespace(rollout=rollout))


def test_the_flagship_layout_has_room_for_all_its_sequences() -> None:
    # The recipe for Qwen3-235B on Atlas A3: one replica of 32 engines with 256 sequences each.
    assert Load(sequences=256, ranks=32, requests=512).concurrency == 8_192 + CONTROL_CALLS


def test_a_step_or_a_validation_may_be_larger_than_what_runs() -> None:
    assert Load(sequences=8, ranks=1, requests=4_096).concurrency == 4_096 + CONTROL_CALLS
    assert requests_of(config(512, 16), 100) == 512 * 17
    assert requests_of(config(4, 2, validated=8), 1_000) == 8_000
