"""What a job cannot have beside prompts in flight."""

from __future__ import annotations

import pytest

from rljob_runtime.contract import ExitCode, Optimizations, TrainerMode
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.verl_plugin import async_settings
from runtime.tests.conftest import MakeJob


@pytest.mark.parametrize(
    ("changed", "optimizations", "seen"),
    [
        (
            {"trainer.v1.sampler.custom_sampler.path": "/code/sampler.py"},
            {},
            "trainer.v1.sampler.custom_sampler samples",
        ),
        ({"skip.rollout_tq.enable": True}, {}, "skip.rollout_tq.enable replays"),
        (
            {"actor_rollout_ref.actor.checkpoint.async_save": True},
            {},
            "actor_rollout_ref.actor.checkpoint.async_save ends",
        ),
        ({"algorithm.adv_estimator": "remax"}, {}, "the baselines of ReMax"),
        ({}, {"late_binding": True}, "optimizations.loadBalancer LateBinding"),
        ({}, {"length_aware_order": True}, "optimizations.promptOrder LengthAware"),
    ],
)
def test_it_is_refused_with_its_reason(
    make_job: MakeJob, changed: dict[str, object], optimizations: dict[str, bool], seen: str
) -> None:
    settings = {"optimizations": Optimizations(**optimizations)}
    job = make_job(mode=TrainerMode.COLOCATE_ASYNC, **settings)
    with pytest.raises(RefusedError) as caught:
        async_settings.require(job, changed.get)
    assert caught.value.code is ExitCode.BAD_CONFIG
    assert str(caught.value).startswith(f"trainer.mode is ColocateAsync, but {seen}")
    async_settings.require(make_job(**settings), changed.get)


def test_a_plain_job_is_not_refused(make_job: MakeJob) -> None:
    async_settings.require(make_job(mode=TrainerMode.COLOCATE_ASYNC), {"algorithm.adv_estimator": "grpo"}.get)
