"""Merging of the job's overrides, the launcher's keys and the platform's defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from rljob_runtime import launcher_overrides
from rljob_runtime.contract import ExitCode, Platform
from rljob_runtime.hydra_config import is_group, touched, unknown_to_frameworks, with_launcher_keys
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.planning.verl import unknown_key
from rljob_runtime.spool.spool import Spool
from rljob_runtime.verl_plugin.platform import cpu_defaults
from runtime.tests.conftest import MakeJob

KNOWN = [
    "actor_rollout_ref.actor.optim.lr",
    "actor_rollout_ref.actor.optim.clip_grad",
    "trainer.save_freq",
    "data.train_files",
]
SPOOL = Spool(Path("/spool"))


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ("actor_rollout_ref.actor.optim.learning_rate", "actor_rollout_ref.actor.optim.lr"),
        ("trainer.save_frequency", "trainer.save_freq"),
        ("optim.lr", "actor_rollout_ref.actor.optim.lr"),
    ],
)
def test_an_unknown_key_names_the_nearest(wrong: str, meant: str) -> None:
    assert f"did you mean {meant}?" in unknown_key(wrong, KNOWN)


def test_a_key_like_no_other_gets_a_pointer_instead() -> None:
    assert "see verl/trainer/config" in unknown_key("zzz", KNOWN)


def test_the_platforms_defaults_fill_what_the_job_leaves_open(make_job: MakeJob) -> None:
    merged = with_launcher_keys(make_job(), SPOOL, Path("/scratch"))
    assert merged["actor_rollout_ref.rollout.dtype"] == "float32"
    assert merged["trainer.resume_mode"] == "disable"
    assert merged["trainer.total_training_steps"] == 40


def test_what_the_job_sets_wins_over_defaults(make_job: MakeJob) -> None:
    job = make_job(overrides={"reward.num_workers": 3})
    assert with_launcher_keys(job, SPOOL, Path("/scratch"))["reward.num_workers"] == 3


def test_a_default_gives_way_to_a_key_above_or_below_it(make_job: MakeJob) -> None:
    key = "actor_rollout_ref.actor.fsdp_config.mixed_precision"
    merged = with_launcher_keys(make_job(overrides={f"+{key}.param_dtype": "bf16"}), SPOOL, Path("/scratch"))
    assert f"+{key}" not in merged
    assert touched("a.b", ["a.b.c"])
    assert touched("a.b.c", ["a.b"])
    assert not touched("a.b", ["a.bc"])


def test_npus_get_none_of_the_cpu_settings(make_job: MakeJob) -> None:
    merged = with_launcher_keys(make_job(platform=Platform.NPU), SPOOL, Path("/scratch"))
    only_cpu = set(cpu_defaults.SETTINGS) - set(launcher_overrides.defaults(make_job(platform=Platform.NPU)))
    assert not only_cpu & set(merged)


def test_a_launchers_key_is_refused_with_its_reason(make_job: MakeJob) -> None:
    with pytest.raises(RefusedError, match=r"is set by the launcher \(trainer\.mode sets it\)") as caught:
        with_launcher_keys(make_job(overrides={"trainer.v1.trainer_mode": "sync"}), SPOOL, Path("/scratch"))
    assert (caught.value.code, caught.value.reason) == (ExitCode.BAD_CONFIG, "ReservedOverride")


def test_a_launchers_key_with_the_launchers_value_is_harmless(make_job: MakeJob) -> None:
    job = make_job(overrides={"trainer.total_training_steps": 40})
    assert with_launcher_keys(job, SPOOL, Path("/scratch"))["trainer.total_training_steps"] == 40


def test_where_a_run_begins_is_decided_later_by_the_launcher_only(make_job: MakeJob) -> None:
    merged = with_launcher_keys(make_job(checkpoint_path="/ckpt"), SPOOL, Path("/scratch"))
    assert (merged["trainer.default_local_dir"], merged["trainer.resume_mode"]) == ("/ckpt", "disable")
    with pytest.raises(RefusedError, match=r"checkpoint\.resume and checkpoint\.from set it"):
        with_launcher_keys(make_job(overrides={"trainer.resume_mode": "auto"}), SPOOL, Path("/scratch"))


def test_an_evaluation_trains_no_steps(make_job: MakeJob) -> None:
    assert launcher_overrides.only_evaluates(make_job(overrides={"trainer.val_only": True}))
    assert not launcher_overrides.only_evaluates(make_job())


def test_names_that_verl_passes_on_are_compared_in_every_spelling() -> None:
    transformer = "actor_rollout_ref.actor.megatron.override_transformer_config"
    config = "actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config"
    overrides = {
        f"+{transformer}": {"recompute_metod": "block", "use_flash_attn": True},
        f"+{transformer}.moe_zero_memry": "level0",
        f"+{config}": '{"enable_flashcom1": true, "weight_nz_mode": 0}',
    }
    unknown = unknown_to_frameworks(overrides)
    assert list(unknown) == [
        f"{transformer}.recompute_metod",
        f"{transformer}.moe_zero_memry",
        f"{config}.enable_flashcom1",
    ]


def test_groups_go_through_hydra() -> None:
    assert is_group("model_engine")
    assert is_group("actor@actor_rollout_ref.actor")
    assert not is_group("trainer.nnodes")


def test_the_pods_environment_wins(make_job: MakeJob) -> None:
    variables = launcher_overrides.environment(make_job(), {"OMP_NUM_THREADS": "4"})
    assert (variables["OMP_NUM_THREADS"], variables["VERL_PLATFORM"]) == ("4", "cpu")


def test_traces_outlive_the_pods(make_job: MakeJob) -> None:
    where = launcher_overrides.defaults(make_job(log_path="/logs"))["global_profiler.save_path"]
    assert where == "/logs/sums-uid01-1/profile"
    assert "global_profiler.save_path" not in launcher_overrides.defaults(make_job())
