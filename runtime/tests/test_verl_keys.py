"""Keys of verl's configuration, their defaults and references."""

from __future__ import annotations

import pytest

from rljob_runtime.planning import verl
from rljob_runtime.planning.verl import SECTION, UNKNOWN


def test_both_engines_have_the_common_keys_and_their_own() -> None:
    dp, megatron = (verl.keys(megatron=engine) for engine in (False, True))
    assert dp["trainer.total_epochs"] == megatron["trainer.total_epochs"] == 30
    assert "actor_rollout_ref.actor.fsdp_config.param_offload" in dp.keys() - megatron.keys()
    assert "actor_rollout_ref.actor.megatron.param_offload" in megatron.keys() - dp.keys()
    assert dp["trainer"] is SECTION
    assert all(not isinstance(value, str) or " " not in value or value.startswith("${") for value in dp.values())


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("trainer.total_epochs", None),
        ("++trainer.total_epochs", None),
        ("trainer.total_epoch", "verl 0.9.1 has no such key; did you mean trainer.total_epochs?"),
        ("trainer.n_gpu", "did you mean trainer.n_gpus_per_node?"),
        ("actor_rolout_ref.rollout.n", "did you mean actor_rollout_ref.rollout.n?"),
        ("actor_rollout_ref.rollout.zzzz", "has no such key; see verl/trainer/config"),
        ("+trainer.total_epoch", "nothing in verl 0.9.1 reads total_epoch; did you mean trainer.total_epochs?"),
        ("+contract.rollout_seconds", None),
        ("+trainr.nnodes", "nothing in verl 0.9.1 reads trainr; did you mean trainer?"),
        ("+trainer.zzzz", "nothing in verl 0.9.1 reads zzzz; remove it"),
        ("zzzz", "see verl/trainer/config"),
        ("+reward.reward_kwargs.overlong_buffer_cfg.enable", None),
        ("+actor_rollout_ref.rollout.engine_kwargs.vllm.max_logprobs", None),
        ("+actor_rollout_ref.actor.megatron.override_transformer_config.anything", None),
        ("+actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype", None),
        ("+critic.ppo_infer_max_token_len_per_gpu", None),
        ("actor_rollout_ref.actor.fsdp_config.param_offload", "exists only with trainer.backend FSDP2"),
        ("+trainer." + "a" * 100_000, "nothing in verl 0.9.1 reads aaa"),
    ],
)
def test_a_key_is_known_or_the_nearest_is_named(key: str, problem: str | None) -> None:
    megatron = "fsdp_config.param_offload" in key or "transformer_config" in key
    found = verl.problem_of(key, megatron=megatron)
    assert found is None if problem is None else found is not None and problem in found


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("actor_rollout_ref.rollout.limit_images", ""),
        ("actor_rollout_ref.rollout.engine_kwargs.vllm.max_logprobs", ""),
        ("actor_rollout_ref.rollout.temperatures", None),
    ],
)
def test_a_key_that_verls_code_reads_needs_a_plus(key: str, near: str | None) -> None:
    found = verl.problem_of(key, megatron=False)
    plus = f"verl 0.9.1 has no such key in its schema; a leading + adds it: +{key}{near}"
    assert found == plus if near is not None else found is not None and "leading +" not in found
    assert (verl.problem_of(f"+{key}", megatron=False) is None) == (near is not None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${oc.select:a.b,5}", 1),
        ("${oc.select:.c,5}", 2),
        ("${oc.select:a.none,5}", None),
        ("${oc.select:nowhere,5}", 5),
        ("${oc.select:nowhere, null}", None),
        ("${oc.select:nowhere}", None),
        ("${oc.select:nowhere,False}", False),
        ("${oc.select:nowhere,level0}", "level0"),
        ("${oc.select:nowhere,${a.b}}", 1),
        ("${a.b}", 1),
        ("${.c}", 2),
        ("${a.loop}", UNKNOWN),
        ("x/${a.b}", UNKNOWN),
        ("${a.nowhere}", UNKNOWN),
    ],
)
def test_references_resolve_as_omegaconf_does(text: str, value: object) -> None:
    known = {"a.b": 1, "s.c": 2, "a.none": None, "s.key": text, "a.loop": "${a.loop}"}
    found = verl.resolved("s.key", lambda key: known.get(key, UNKNOWN))
    assert found is value if isinstance(value, bool) or value is None or value is UNKNOWN else found == value
