"""Misspelt arguments of Megatron and MindSpeed are found before a run."""

from __future__ import annotations

import pytest

from rljob_runtime.planning import megatron
from rljob_runtime.planning.megatron_names import SOURCES

ACTOR = "actor_rollout_ref.actor.megatron.override_transformer_config"


@pytest.mark.parametrize("name", ["swap_optimizer", "moe_zero_memory", "use_flash_attn", "recompute_granularity"])
def test_names_of_the_recipes_are_known(name: str) -> None:
    assert megatron.unknown_keys([f"{ACTOR}.{name}", f"critic.megatron.override_transformer_config.{name}"]) == {}


def test_a_misspelt_name_gets_the_nearest() -> None:
    key = f"{ACTOR}.moe_zero_memry"
    assert megatron.unknown_keys([key])[key] == (
        "moe_zero_memry is not an argument of Ascend/MindSpeed core_r0.16.0 and NVIDIA/Megatron-LM core_r0.16.0; "
        "did you mean moe_zero_memory?"
    )


def test_a_name_like_no_other_gets_a_pointer() -> None:
    assert megatron.unknown_keys([f"{ACTOR}.qqqqqq"])[f"{ACTOR}.qqqqqq"].endswith("see their argument sources")


def test_other_keys_are_none_of_its_business() -> None:
    assert megatron.unknown_keys(["actor_rollout_ref.actor.megatron.param_offload", "trainer.nnodes"]) == {}


def test_every_name_has_a_file_of_a_pinned_commit() -> None:
    for source in SOURCES:
        assert len(source.commit) == 40
        for path, names in source.names.items():
            assert path.endswith((".py", ".md"))
            assert names.split() == sorted(set(names.split()))
