"""The switches of spec.optimizations that decide by the effective configuration."""

from __future__ import annotations

import pytest
from builders import Json, merged, small_spec, typed

from rljob.launchers.verl.optimizations import optimizations, prompt_order, skip_old_log_prob, sleep_level

MODEL = "actor_rollout_ref.model"
LENGTH_AWARE: Json = {"optimizations": {"promptOrder": "LengthAware"}}
DISCARDS: Json = {"optimizations": {"sleepLevel": 2}}
ADAPTER: dict[str, object] = {f"{MODEL}.lora.rank": 8}


def sets(values: dict[str, object], *changes: Json) -> Json:
    spec = small_spec({"verl": {"overrides": values}})
    for change in changes:
        spec = merged(spec, change)
    return spec


@pytest.mark.parametrize(
    ("values", "change", "problems"),
    [
        (ADAPTER, {}, 0),
        (ADAPTER, DISCARDS, 1),
        # A merged adapter is sent as part of whole weights.
        (ADAPTER | {f"{MODEL}.lora.merge": True}, DISCARDS, 0),
        ({f"{MODEL}.mtp.enable": True}, DISCARDS, 0),
        ({f"{MODEL}.mtp": {"enable": True, "enable_rollout": True}}, DISCARDS, 1),
        ({}, DISCARDS, 0),
    ],
)
def test_what_no_sync_sends_is_not_discarded(values: dict[str, object], change: Json, problems: int) -> None:
    assert len(list(sleep_level.check(typed(sets(values, change))))) == problems


def test_a_recipe_that_skips_the_pass_can_evaluate() -> None:
    several: dict[str, object] = {"actor_rollout_ref.actor.ppo_epochs": 2}
    spec = sets(several, {"optimizations": {"skipOldLogProb": "Enabled"}}, {"trainer": {"mode": "Evaluate"}})
    assert list(skip_old_log_prob.check(typed(spec))) == []
    assert not optimizations(typed(spec)).skip_old_log_prob


def test_every_obstacle_is_named_at_once() -> None:
    values: dict[str, object] = {"algorithm.use_kl_in_reward": True, "actor_rollout_ref.actor.ppo_epochs": 2}
    spec = sets(values, {"optimizations": {"skipOldLogProb": "Enabled"}})
    assert len(list(skip_old_log_prob.check(typed(spec)))) == 2
    assert list(skip_old_log_prob.check(typed(sets(values)))) == []


@pytest.mark.parametrize(
    ("values", "change", "problems"),
    [
        ({}, LENGTH_AWARE, 0),
        ({"data.shuffle": False}, LENGTH_AWARE, 1),
        ({"data.shuffle": None}, LENGTH_AWARE, 1),
        ({"data.shuffle": False}, {}, 0),
        ({"data.shuffle": True}, LENGTH_AWARE, 0),
        ({"data.shuffle": False}, LENGTH_AWARE | {"trainer": {"mode": "Evaluate"}}, 0),
    ],
)
def test_prompts_have_one_order(values: dict[str, object], change: Json, problems: int) -> None:
    found = list(prompt_order.check(typed(sets(values, change))))
    assert len(found) == problems
    assert all("spec.verl.overrides[data.shuffle] keeps that of the files" in str(each) for each in found)


def test_job_json_contains_the_optimizations() -> None:
    assert optimizations(typed(small_spec(LENGTH_AWARE))).length_aware_order
    assert not optimizations(typed(small_spec())).length_aware_order
    told = optimizations(typed(merged(small_spec(DISCARDS), {"accelerator": {"class": "atlas-a2"}})))
    assert (told.skip_old_log_prob, told.gc_freeze, told.sleep_level) == (True, True, 2)
    off = {"skipOldLogProb": "Disabled", "gcFreeze": "Disabled"}
    told = optimizations(typed(small_spec({"optimizations": off})))
    assert (told.skip_old_log_prob, told.gc_freeze, told.sleep_level) == (False, False, 1)
