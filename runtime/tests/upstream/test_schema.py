"""verl's real configuration schema against our keys, and the launcher's refusals against the real schema."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime import hydra_config, launcher_overrides
from rljob_runtime.checkpoints import contents, parallelism
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.contract import CONTRACT_VERSION, ExitCode, JobConfig, OverrideValue, Platform
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.planning import verl
from rljob_runtime.planning.verl import SECTION
from rljob_runtime.spool.spool import Spool
from rljob_runtime.verl_plugin.launcher import trains_critic

SPOOL, SCRATCH = Spool(Path("/spool")), Path("/scratch")
MINIMAL: dict[str, OverrideValue] = {
    "algorithm.adv_estimator": "grpo",
    "data.train_batch_size": 32,
    "actor_rollout_ref.actor.ppo_mini_batch_size": 32,
    "actor_rollout_ref.rollout.n": 8,
    "actor_rollout_ref.rollout.tensor_model_parallel_size": 1,
    "actor_rollout_ref.model.path": "/model",
}


def job(platform: Platform = Platform.CPU, **overrides: Any) -> JobConfig:
    return JobConfig(
        version=CONTRACT_VERSION,
        namespace="ns",
        name="job",
        uid="u",
        cluster_name="c",
        cluster_generation=1,
        platform=platform,
        nodes=1,
        devices=2,
        dies_per_card=2,
        total_steps=40,
        overrides=MINIMAL | {key.replace("__", "."): value for key, value in overrides.items()},
    )


@pytest.fixture(scope="module")
def schema() -> set[str]:
    return set(hydra_config.flatten(hydra_config._compose_groups({})))


@pytest.mark.parametrize("megatron", [False, True])
def test_the_operators_table_of_keys_is_the_composed_configuration(megatron: bool) -> None:
    """`rljob validate` decides by the table; `python -m upstream.verl_names` writes it from the wheel."""
    from omegaconf import OmegaConf

    config = hydra_config._compose_groups({"model_engine": "megatron"} if megatron else {})
    composed = OmegaConf.to_container(config, resolve=False)
    known = verl.keys(megatron=megatron)
    assert set(hydra_config.flatten(config)) - hydra_config.GROUPS == set(known)
    for key, default in known.items():
        value = functools.reduce(lambda node, name: node[name], key.split("."), composed)
        assert value == default or (default is SECTION and isinstance(value, dict)), key


@pytest.mark.parametrize("platform", Platform)
def test_every_key_of_ours_is_in_the_schema_or_marked_as_new(schema: set[str], platform: Platform) -> None:
    ours = launcher_overrides.defaults(job(platform)) | launcher_overrides.fixed(job(platform), SPOOL, SCRATCH)
    missing = [key for key in ours if not key.startswith("+") and key not in schema]
    known_by_now = [key for key in ours if key.startswith("+") and hydra_config.plain(key) in schema]
    assert missing == []
    assert known_by_now == []


def test_a_minimal_job_passes_verls_own_checks() -> None:
    config = hydra_config.compose(job(), SPOOL, SCRATCH)
    hydra_config.validate(config)
    assert config.trainer.n_gpus_per_node == 2
    assert config.actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype == "fp32"


def test_a_misspelt_key_names_the_nearest() -> None:
    with pytest.raises(RefusedError, match=r"did you mean actor_rollout_ref\.actor\.optim\.lr\?") as caught:
        hydra_config.compose(job(actor_rollout_ref__actor__optim__lrr=1.0), SPOOL, SCRATCH)
    assert (caught.value.code, caught.value.reason) == (ExitCode.BAD_CONFIG, "UnknownOverride")


def test_a_batch_that_does_not_divide_is_refused_with_verls_message() -> None:
    config = hydra_config.compose(job(data__train_batch_size=33, actor_rollout_ref__rollout__n=1), SPOOL, SCRATCH)
    with pytest.raises(RefusedError, match="verl rejects the configuration") as caught:
        hydra_config.validate(config)
    assert caught.value.code is ExitCode.BAD_CONFIG


def test_another_engine_brings_its_own_keys() -> None:
    megatron = job(
        Platform.NPU,
        model_engine="megatron",
        actor_rollout_ref__actor__megatron__tensor_model_parallel_size=2,
    )
    config = hydra_config.compose(megatron, SPOOL, SCRATCH)
    assert config.actor_rollout_ref.actor.strategy == "megatron"
    assert config.actor_rollout_ref.actor.megatron.tensor_model_parallel_size == 2


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(RefusedError, match="model_engine=steam"):
        hydra_config.compose(job(model_engine="steam"), SPOOL, SCRATCH)


def test_the_split_of_a_megatron_model_is_read_from_verls_own_keys(tmp_path: Path) -> None:
    keys = {"model_engine": "megatron", "actor_rollout_ref__actor__megatron__tensor_model_parallel_size": 2}
    config = hydra_config.compose(job(Platform.NPU, **keys), SPOOL, SCRATCH)
    assert parallelism.split(config) == {
        "tensor_model_parallel_size": 2,
        "pipeline_model_parallel_size": 1,
        "virtual_pipeline_model_parallel_size": None,
        "expert_model_parallel_size": 1,
        "expert_tensor_parallel_size": None,
    }
    parallelism.note(tmp_path, parallelism.split(config), lambda: None)
    config.actor_rollout_ref.actor.megatron.pipeline_model_parallel_size = 2
    begun = Start(tmp_path, 5)
    with pytest.raises(RefusedError, match="pipeline_model_parallel_size 1, now 2"):
        parallelism.require(begun, config)
    config.actor_rollout_ref.actor.checkpoint.load_contents = ["model"]
    parallelism.require(begun, config)


@pytest.mark.parametrize(("engine", "platform"), [("dp", Platform.CPU), ("megatron", Platform.NPU)])
@pytest.mark.parametrize(
    "key",
    [
        "actor_rollout_ref.actor.checkpoint.save_contents",
        "+actor_rollout_ref[actor].checkpoint.save_contents",
        "critic.checkpoint.save_contents",
        "critic.checkpoint.load_contents",
    ],
)
@pytest.mark.parametrize("value", [["optimizer", "extra"], "['optimizer']"])
def test_checkpoints_without_the_model_are_refused_however_they_are_written(
    engine: str, platform: Platform, key: str, value: Any
) -> None:
    saving = dataclasses.replace(job(platform, **{"model_engine": engine, key: value}), checkpoint_path="/saves")
    config = hydra_config.compose(saving, SPOOL, SCRATCH)
    with pytest.raises(RefusedError, match="without model"):
        contents.require(saving, config, needs_critic=True)
    plain = hydra_config.compose(job(platform, model_engine=engine), SPOOL, SCRATCH)
    contents.require(saving, plain, needs_critic=True)


@pytest.mark.filterwarnings("ignore:Disabled critic:UserWarning")
@pytest.mark.parametrize(("algorithm", "needed"), [("grpo", False), ("gae", True)])
def test_the_critics_checkpoints_are_judged_where_verl_trains_one(algorithm: str, *, needed: bool) -> None:
    keys: dict[str, Any] = {"algorithm.adv_estimator": algorithm, "critic.checkpoint.save_contents": ["model"]}
    saving = dataclasses.replace(job(**keys), checkpoint_path="/saves")
    config = hydra_config.compose(saving, SPOOL, SCRATCH)
    assert trains_critic(config) is needed
    with pytest.raises(RefusedError, match="without optimizer") if needed else contextlib.nullcontext():
        contents.require(saving, config, needs_critic=trains_critic(config))


def test_what_is_loaded_is_what_is_saved_unless_it_is_set() -> None:
    config = hydra_config.compose(job(), SPOOL, SCRATCH)
    assert contents.loads(config, needs_critic=True) == {
        "actor": contents.DEFAULT,
        "critic": contents.DEFAULT,
    }
    config.critic.checkpoint.save_contents = ["model"]
    assert contents.loads(config, needs_critic=True) == {
        "actor": contents.DEFAULT,
        "critic": {"model"},
    }
