"""The loss that takes its own log-probabilities as the old ones, beside verl's two passes."""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rljob_runtime.contract import CONTRACT_VERSION, JobConfig, Optimizations, Platform

torch = pytest.importorskip("torch")

PROMPTS, RESPONSES = (3, 4, 2, 5, 1, 2), (4, 6, 3, 5, 1, 8)
ADVANTAGES = (1.0, -1.0, 0.5, -0.2, 0.7, -0.6)


def losses() -> list[str]:
    """Return every loss that verl has registered."""
    from verl.trainer.ppo import core_algos

    return sorted(core_algos.POLICY_LOSS_REGISTRY)


def nested(rows: list[Any]) -> Any:
    return torch.nested.as_nested_tensor(rows, layout=torch.jagged)


def log_probs(seed: int) -> Any:
    """Return log-probabilities of whole sequences, as an engine does."""
    made = torch.Generator().manual_seed(seed)
    lengths = [prompt + response for prompt, response in zip(PROMPTS, RESPONSES, strict=True)]
    return nested([-torch.rand(length, generator=made) * 3 for length in lengths])


def masks() -> Any:
    """Return response masks: one response has tokens of a tool, the last row is one that verl made up."""
    rows = [torch.ones(length) for length in RESPONSES]
    rows[1][2:4] = 0
    rows[-1][:] = 0
    return nested(rows)


def response(whole: Any) -> Any:
    from verl.workers.utils.padding import response_from_nested

    return response_from_nested(whole, masks())


def batch(**columns: Any) -> Any:
    from tensordict import TensorDict
    from verl.utils import tensordict_utils

    rows: dict[str, Any] = {
        "prompts": nested([torch.ones(length, dtype=torch.long) for length in PROMPTS]),
        "responses": nested([torch.ones(length, dtype=torch.long) for length in RESPONSES]),
        "response_mask": masks(),
        "advantages": nested([torch.full((n,), value) for n, value in zip(RESPONSES, ADVANTAGES, strict=True)]),
        **columns,
    }
    made = TensorDict(rows, batch_size=len(PROMPTS))
    tokens = int(masks().values().sum())
    tensordict_utils.assign_non_tensor(made, dp_size=1, batch_num_tokens=tokens, global_batch_size=len(PROMPTS))
    return made


def actor(loss: str, aggregation: str = "token-mean") -> Any:
    from verl.workers.config import FSDPActorConfig, PolicyLossConfig

    needs = {"dro_beta": 0.1} if loss == "dro" else {}
    return FSDPActorConfig(
        strategy="fsdp2",
        ppo_mini_batch_size=6,
        ppo_micro_batch_size_per_gpu=6,
        rollout_n=1,
        loss_agg_mode=aggregation,
        policy_loss=PolicyLossConfig(loss_mode=loss, **needs),
    )


def gradient(function: Any, config: Any, whole: Any, data: Any) -> tuple[float, Any, dict[str, Any]]:
    """Return the loss, its gradient by the log-probabilities, and the metrics."""
    leaf = whole.values().clone().requires_grad_()
    tracked = torch.nested.nested_tensor_from_jagged(leaf, offsets=whole.offsets())
    torch.manual_seed(1)  # some losses choose tokens at random
    loss, metrics = function(config, {"log_probs": tracked}, data)
    (found,) = torch.autograd.grad(loss, leaf)
    return loss.item(), found, metrics


@pytest.mark.parametrize("aggregation", ["token-mean", "seq-mean-token-sum", "seq-mean-token-mean"])
def test_every_loss_of_verl_has_the_gradient_of_the_two_passes(aggregation: str) -> None:
    from verl.workers.utils.losses import ppo_loss

    from rljob_runtime.verl_plugin.trainer.on_policy import on_policy_loss

    whole, names = log_probs(0), losses()
    assert len(names) >= 12
    for name in names:
        config = actor(name, aggregation)
        two = gradient(ppo_loss, config, whole, batch(old_log_probs=response(whole)))
        one = gradient(on_policy_loss, config, whole, batch())
        assert one[0] == two[0], name
        assert torch.equal(one[1], two[1]), name
        assert two[1].abs().max() > 0, name
        assert two[2].keys() <= one[2].keys()
        for key, metric in two[2].items():
            assert metric.values == one[2][key].values, (name, key)


def test_a_batch_with_old_log_probabilities_keeps_them() -> None:
    from verl.workers.utils.losses import ppo_loss

    from rljob_runtime.verl_plugin.trainer.on_policy import on_policy_loss

    whole, earlier = log_probs(0), response(log_probs(1))
    kept = gradient(on_policy_loss, actor("vanilla"), whole, batch(old_log_probs=earlier))
    assert torch.equal(kept[1], gradient(ppo_loss, actor("vanilla"), whole, batch(old_log_probs=earlier))[1])
    assert not torch.equal(kept[1], gradient(on_policy_loss, actor("vanilla"), whole, batch())[1])


def of_verl(whole: Any, rollout: Any, mask: Any) -> dict[str, float]:
    """Return the figures of verl's own pass over a whole batch."""
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_and_add_to_batch
    from verl.utils.debug.metrics import calculate_debug_metrics

    rows = batch(old_log_probs=response(whole), rollout_log_probs=rollout, response_mask=mask)
    fields = ["responses", "response_mask", "old_log_probs", "rollout_log_probs"]
    data = DataProto(batch=rows.select(*fields).to_padded_tensor())
    found: dict[str, float] = calculate_debug_metrics(data)
    _, corrected = compute_rollout_correction_and_add_to_batch(data, OmegaConf.create({}))
    return {**found, **corrected}


@pytest.mark.parametrize("cuts", [(6,), (2, 4), (1, 1, 3, 1)])
def test_the_figures_of_mismatch_are_those_of_verls_pass(cuts: tuple[int, ...]) -> None:
    from verl.utils import tensordict_utils
    from verl.utils.metric import Metric, reduce_metrics

    from rljob_runtime.verl_plugin.trainer.on_policy import PREFIX, SkippedPass, on_policy_loss

    whole, rollout = log_probs(0), response(nested([row - 0.3 * torch.rand(len(row)) for row in log_probs(0).unbind()]))
    rows, config, begun = batch(rollout_log_probs=rollout), actor("vanilla"), 0
    metrics: dict[str, Any] = {}
    for size in cuts:
        part = tensordict_utils.index_select_tensor_dict(rows, list(range(begun, begun + size)))
        output = {"log_probs": nested(list(whole.unbind())[begun : begun + size])}
        for name, value in on_policy_loss(config, output, part)[1].items():
            if name.startswith(PREFIX):
                metrics.setdefault(f"actor/{name}", Metric(value.aggregation)).append(value)
        begun += size
    step = reduce_metrics(dict(metrics))
    SkippedPass.report(object.__new__(SkippedPass), step)
    expected = of_verl(whole, rollout, masks())
    assert set(expected) | {"actor/entropy"} == set(step)
    for name, value in expected.items():
        assert step[name] == pytest.approx(value, rel=1e-4, abs=1e-6), name
    # Without truncated sampling, the expectation of the surprise of a sampled token is the entropy.
    surprise = -(response(whole).values() * masks().values()).sum() / masks().values().sum()
    assert step["actor/entropy"] == pytest.approx(float(surprise), rel=1e-5)


def decided(folder: Path, notes: list[str], model: dict[str, object], **overrides: Any) -> Any:
    """Return what our trainer decides about a composed configuration and a model."""
    from rljob_runtime import hydra_config
    from rljob_runtime.spool.spool import Spool
    from rljob_runtime.verl_plugin.trainer.on_policy import SkippedPass

    (folder / "config.json").write_text(json.dumps(model))
    settings = {
        "algorithm.adv_estimator": "grpo",
        "data.train_batch_size": 32,
        "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
        "actor_rollout_ref.rollout.n": 8,
        "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
        "actor_rollout_ref.model.path": str(folder),
        **{key.replace("__", "."): value for key, value in overrides.items()},
    }
    wishes = Optimizations(skip_old_log_prob=True)
    job = JobConfig(CONTRACT_VERSION, "ns", "job", "u", "c", 1, Platform.CPU, 1, 2, 2, 40, settings)
    job = dataclasses.replace(job, optimizations=wishes)
    config = hydra_config.compose(job, Spool(folder / "spool"), folder / "scratch")
    return SkippedPass(config, SimpleNamespace(job=job, note=notes.append))  # type: ignore[arg-type]


DROPOUT = "actor_rollout_ref__model__override_config"


def test_the_trainer_skips_the_pass_of_one_update(tmp_path: Path) -> None:
    notes: list[str] = []
    made = decided(tmp_path, notes, {"attention_dropout": 0.0, "classifier_dropout": 0.1})
    assert made.skips(32 * 8)

    def correction() -> Any:
        return made._config.algorithm.rollout_correction

    with made.uncorrected():
        assert correction() is None
    assert correction().bypass_mode is False
    # An agent loop has returned more rows than one update takes.
    assert not made.skips(32 * 8 + 1)
    with made.uncorrected():
        assert correction() is not None
    assert notes == []


@pytest.mark.parametrize(
    ("model", "overrides", "words"),
    [
        ({"attention_dropout": 0.1}, {}, "attention_dropout 0.1"),
        ({"text_config": {"attention_dropout": 0.1}}, {}, "attention_dropout 0.1"),
        ({"attention_dropout": 0.1}, {f"+{DROPOUT}": {"attention_dropout": 0.0}}, None),
        ({}, {f"+{DROPOUT}": {"attention_dropout": 0.2}}, "attention_dropout 0.2"),
        ({}, {"algorithm__use_kl_in_reward": True}, "KL penalty"),
    ],
)
def test_the_trainer_keeps_the_pass_that_the_operator_could_not_judge(
    tmp_path: Path, model: dict[str, object], overrides: dict[str, Any], words: str | None
) -> None:
    notes: list[str] = []
    made = decided(tmp_path, notes, model, **overrides)
    assert made.skips(8) is (words is None)
    assert len(notes) == (0 if words is None else 1)
    assert all(str(words) in note for note in notes)


def test_verl_keeps_what_skipping_the_pass_needs() -> None:
    from verl.trainer.ppo.v1.trainer_base import PPOTrainer
    from verl.workers.engine_workers import ActorRolloutRefWorker, TrainingWorker

    assert list(inspect.signature(ActorRolloutRefWorker.set_loss_fn).parameters) == ["self", "loss_fn"]
    assert "loss_function=self.loss_fn" in inspect.getsource(TrainingWorker.train_batch)
    advantage = inspect.getsource(PPOTrainer._compute_advantage)
    assert "rollout_corr_config is not None and" in advantage
    assert advantage.count("old_log_probs") == 1  # among the fields that it reads, which need not exist
    assert 'rename_dict(output["metrics"], "actor/")' in inspect.getsource(PPOTrainer._update_actor)
    step = inspect.getsource(PPOTrainer._step_once)
    assert "batch = self._compute_old_log_prob(batch, metrics=metrics)" in step
