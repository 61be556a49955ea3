"""The experts' load as verl counts it from routing, and as the exporter names it."""

from __future__ import annotations

import inspect

import pytest

from rljob_runtime.exporter import verl_metrics


def test_the_imbalance_of_known_routing_has_its_name_and_value() -> None:
    import torch
    from verl import DataProto
    from verl.trainer.ppo.metric_utils import RolloutMoELoadBalanceMetricsAccumulator, compute_moe_lb_metrics

    accumulator = RolloutMoELoadBalanceMetricsAccumulator()
    accumulator.num_experts, accumulator.num_experts_initialized = 4, True
    # One response of five tokens after a prompt of one, two layers, one expert per token. The last token was sampled
    # and not fed back, so that four count: three to expert 0 in layer 0, and one to each in layer 1.
    routed = torch.tensor([[[[9], [9]], [[0], [0]], [[0], [1]], [[0], [2]], [[2], [3]], [[0], [0]]]])
    batch = DataProto.from_dict({"routed_experts": routed, "response_mask": torch.ones(1, 5)})
    logged = compute_moe_lb_metrics(batch, moe_lb_metrics_interval=1, global_steps=1, accumulator=accumulator)
    seen = {(named.metric.name, *named.labels.values()): logged[named.key] for named in verl_metrics.named(logged)}
    assert seen["rljob_expert_load_violation", "max_vio", "0"] == pytest.approx(3 / (4 / 4) - 1)
    assert seen["rljob_expert_load_violation", "min_vio", "0"] == pytest.approx(-1)
    assert seen["rljob_expert_load_violation", "max_vio", "1"] == pytest.approx(0)
    assert seen["rljob_expert_load", "max_vio", "max"] == pytest.approx(2)
    assert seen["rljob_expert_load", "max_vio", "avg"] == pytest.approx(1)
    assert seen["rljob_expert_assignments",] == 8
    assert seen["rljob_expert_load_known",] == 1
    assert not [name for name, *_ in seen if name == verl_metrics.GENERIC.name]


def test_the_trainer_logs_it_by_the_key_that_the_documentation_names() -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer

    source = inspect.getsource(PPOTrainer._compute_metrics)
    assert 'rollout.get("moe_load_balance_metrics_interval", 0)' in source
