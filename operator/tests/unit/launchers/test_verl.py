"""From the typed spec to verl's keys and to job.json."""

import math

import pytest
from builders import IDENTITY, Json, group, merged, small_spec, typed

from rljob.launchers import verl
from rljob_runtime.contract import JobConfig, Platform

FULL = merged(
    small_spec(group({"nodes": 8, "devicesPerNode": 16})),
    {
        "accelerator": {"class": "atlas-a3-superpod"},
        "data": {"validation": ["/data/validation.parquet"], "maxPromptTokens": 2048},
        "algorithm": {"klCoefficient": "0.001"},
        "trainer": {"globalBatchSize": 256, "miniBatchSize": 128, "microBatchSizePerDevice": 2, "learningRate": "2e-6"},
        "rollout": {"parallelism": {"tensor": 4}, "maxSequences": 512},
        "checkpoint": {"path": "/ckpt", "everySteps": 10},
        "observability": {"logPath": "/logs"},
        "verl": {"overrides": {"+trainer.extra": [1, "a"]}},
    },
)


def test_every_row_names_another_key() -> None:
    keys = [row.key for row in verl.TABLE]
    assert len(keys) == len(set(keys))
    assert set(keys) < set(verl.TYPED_KEYS)


@pytest.mark.parametrize(
    ("key", "small", "full"),
    [
        ("algorithm.adv_estimator", "grpo", "grpo"),
        ("actor_rollout_ref.actor.use_kl_loss", False, True),
        ("data.val_files", ["/data/train.parquet"], ["/data/validation.parquet"]),
        ("actor_rollout_ref.actor.ppo_mini_batch_size", 32, 128),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu", 128, 2),
        ("actor_rollout_ref.rollout.tensor_model_parallel_size", 1, 4),
        ("actor_rollout_ref.rollout.max_num_seqs", None, 512),
        ("trainer.device", "cpu", "npu"),
        ("trainer.nnodes", 1, 8),
        ("trainer.save_freq", -1, 10),
        ("+trainer.extra", None, [1, "a"]),
    ],
)
def test_a_field_becomes_its_key(key: str, small: object, full: object) -> None:
    assert verl.overrides(typed()).get(key) == small
    assert verl.overrides(typed(FULL)).get(key) == full


def test_a_share_of_less_than_a_sample_is_one() -> None:
    spec = typed(small_spec(merged(group({"nodes": 64, "devicesPerNode": 16}), {"trainer": {"samplesPerPrompt": 2}})))
    assert verl.micro_batch(spec) == 1


def test_job_json_tells_the_launcher_all_and_reads_back() -> None:
    config = verl.job_config(IDENTITY, typed(FULL), 3)
    assert (config.platform, config.nodes, config.devices, config.cards) == (Platform.NPU, 8, 128, 64)
    assert (config.cluster_name, config.cluster_generation, config.total_steps) == ("sums-0a1b2-3", 3, 40)
    assert (config.checkpoint_path, config.log_path) == ("/ckpt", "/logs")
    assert JobConfig.from_json(config.to_json()) == config


def test_paths_that_must_exist_are_named_by_their_field() -> None:
    paths = verl.job_config(IDENTITY, typed(FULL), 1).required_paths
    assert {path.field: path.path for path in paths} == {
        "model.path": "/data/model",
        "reward.path": "/code/reward.py",
        "data.train[0]": "/data/train.parquet",
        "data.validation[0]": "/data/validation.parquet",
    }


@pytest.mark.parametrize("spec", [small_spec(), FULL])
def test_the_same_spec_always_has_the_same_digest(spec: Json) -> None:
    assert verl.job_config(IDENTITY, typed(spec), 1).digest() == verl.job_config(IDENTITY, typed(spec), 1).digest()
    assert not math.isnan(verl.job_config(IDENTITY, typed(spec), 1).cards)
