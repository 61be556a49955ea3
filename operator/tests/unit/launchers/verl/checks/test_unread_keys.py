"""Overrides without an effect are warnings, unless they state verl's default."""

from __future__ import annotations

import pytest
from builders import small_spec, validate
from corpus.bad import Json, key, megatron, merged

ACTOR = "actor_rollout_ref.actor"


@pytest.mark.parametrize(
    ("change", "instead"),
    [
        (key(f"{ACTOR}.freeze_vision_tower", True), "remove it"),
        (key(f"{ACTOR}.use_torch_compile", False), f"the engine reads {ACTOR}.fsdp_config.use_torch_compile"),
        (key(ACTOR, {"grad_clip": 0.5}), "use spec.trainer.gradientClip"),
        (key("actor_rollout_ref.rollout.agent.custom_async_server.path", "/x.py"), "remove it"),
        (merged(megatron({}), key("data.return_raw_input_ids", True)), "remove it"),
    ],
)
def test_a_key_that_nothing_reads_is_a_warning(change: Json, instead: str) -> None:
    checked = validate("sums", small_spec(change))
    (found,) = (each for each in checked.warnings if "has no effect" in each.message)
    assert found.field.startswith("spec.verl.overrides[")
    assert found.message.endswith(instead)


@pytest.mark.parametrize("change", [key(f"{ACTOR}.use_torch_compile", True), key("trainer.balance_batch", True)])
def test_the_default_of_such_a_key_is_none(change: Json) -> None:
    assert not [each for each in validate("sums", small_spec(change)).warnings if "has no effect" in each.message]
