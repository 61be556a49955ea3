"""What a checkpoint must contain for a run to resume from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from rljob_runtime.checkpoints import contents
from rljob_runtime.checkpoints.contents import DEFAULT, MODEL, OPTIMIZER
from rljob_runtime.contract import ExitCode
from rljob_runtime.outcomes import RefusedError
from runtime.tests.conftest import MakeJob

if TYPE_CHECKING:
    from omegaconf import DictConfig

EVERYTHING = dict.fromkeys(contents.KEYS, DEFAULT)
SETTINGS = [(role, field) for role in contents.KEYS for field in contents.NEEDED]


def config(
    role: str = "actor", strategy: str = "fsdp2", optimizer: Mapping[str, object] | None = None, **changed: object
) -> DictConfig:
    """Return the part of verl's configuration that is read, with one role's settings changed."""
    default = {"save_contents": ["model", "optimizer", "extra"], "load_contents": ["model", "optimizer", "extra"]}
    actor, critic = (
        SimpleNamespace(
            checkpoint=SimpleNamespace(**(default | (changed if role == name else {}))),
            strategy=strategy,
            optim=optimizer or {"lr_scheduler_type": "constant", "lr_warmup_steps": -1, "lr_warmup_steps_ratio": 0.0},
        )
        for name in contents.KEYS
    )
    return cast("DictConfig", SimpleNamespace(actor_rollout_ref=SimpleNamespace(actor=actor), critic=critic))


def changed(role: str, field: str, value: object) -> DictConfig:
    """Return the configuration with one setting of a role changed."""
    return config(role, **cast("dict[str, Any]", {field: value}))


def write_manifest(folder: Path, *listed: str) -> None:
    """Write what Megatron lists of a save."""
    folder.mkdir(parents=True)
    (folder / contents.MEGATRON_FILE).write_text(json.dumps({"contents": {name: {} for name in listed}}))


@pytest.mark.parametrize(("role", "field"), SETTINGS)
@pytest.mark.parametrize("value", [["optimizer", "extra"], "['optimizer', 'extra']", [], "", 5, {}])
def test_settings_without_the_model_are_refused(make_job: MakeJob, role: str, field: str, value: object) -> None:
    with pytest.raises(RefusedError) as caught:
        contents.require(make_job(checkpoint_path="/saves"), changed(role, field, value), needs_critic=True)
    assert (caught.value.code, caught.value.reason) == (ExitCode.BAD_CONFIG, "InvalidOverride")
    assert str(caught.value).startswith(f"{contents.KEYS[role]}.checkpoint.{field} is {value}, without model")
    contents.require(make_job(), changed(role, field, value), needs_critic=True)


@pytest.mark.parametrize("field", contents.NEEDED)
def test_a_critic_that_the_algorithm_does_not_train_is_not_judged(make_job: MakeJob, field: str) -> None:
    job = make_job(checkpoint_path="/saves")
    contents.require(job, changed("critic", field, ["extra"]), needs_critic=False)
    with pytest.raises(RefusedError, match=r"actor_rollout_ref\.actor\.checkpoint"):
        contents.require(job, changed("actor", field, ["extra"]), needs_critic=False)


@pytest.mark.parametrize("role", contents.KEYS)
def test_the_optimizer_must_be_saved_and_need_not_be_loaded(make_job: MakeJob, role: str) -> None:
    job = make_job(checkpoint_path="/saves")
    contents.require(job, config(role, load_contents=["model"]), needs_critic=True)
    with pytest.raises(RefusedError) as caught:
        contents.require(job, config(role, save_contents=["model", "extra"]), needs_critic=True)
    assert str(caught.value) == (
        f"{contents.KEYS[role]}.checkpoint.save_contents is ['model', 'extra'], without optimizer: an "
        "attempt that resumes would not continue what was trained; list model and optimizer there, or remove the "
        "override"
    )


@pytest.mark.parametrize(
    "value", [None, ["model", "optimizer"], ["hf_model", "model", "optimizer"], "[model,optimizer]"]
)
def test_settings_with_both_are_accepted(make_job: MakeJob, value: object) -> None:
    contents.require(
        make_job(checkpoint_path="/saves"), config(save_contents=value, load_contents=value), needs_critic=True
    )


def test_the_critic_is_loaded_only_by_an_algorithm_that_has_one() -> None:
    assert contents.loads(config("critic", load_contents=["model"]), needs_critic=False) == {"actor": DEFAULT}
    loads = contents.loads(config("critic", load_contents=["model"]), needs_critic=True)
    assert loads == {"actor": DEFAULT, "critic": {MODEL}}


@pytest.mark.parametrize(
    ("files", "lacking"),
    [
        (["model_world_size_2_rank_0.pt", "optim_world_size_2_rank_0.pt"], ["actor extra"]),
        (["model_world_size_2_rank_0.pt", "extra_state_world_size_2_rank_0.pt"], ["actor optimizer"]),
        (["optim_world_size_2_rank_0.pt"], ["actor model", "actor extra"]),
        (["extra_state_world_size_2_rank_0.pt"], ["actor model", "actor optimizer"]),
        (["fsdp_config.json", "huggingface/model.safetensors"], ["actor model", "actor optimizer", "actor extra"]),
        (["another_engine.pt"], []),
        ([], []),
    ],
)
def test_saved_contents_are_read_from_the_files_of_fsdp(tmp_path: Path, files: list[str], lacking: list[str]) -> None:
    for name in files:
        file = tmp_path / "actor" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    assert list(contents.lacking(tmp_path, EVERYTHING)) == lacking


@pytest.mark.parametrize(
    ("listed", "lacking"),
    [
        (["model", "optimizer", "lr_scheduler", "rng_state"], []),
        (["hf_config", "model", "hf_model"], ["critic optimizer", "critic extra"]),
        (["optimizer", "rng_state"], ["critic model"]),
    ],
)
def test_saved_contents_are_read_from_the_manifest_of_megatron(
    tmp_path: Path, listed: list[str], lacking: list[str]
) -> None:
    write_manifest(tmp_path / "critic", *listed)
    for name in ("model", "optimizer"):  # verl makes the folders of all contents
        (tmp_path / "critic" / name / "dist_ckpt").mkdir(parents=True)
    assert list(contents.lacking(tmp_path, EVERYTHING)) == lacking
    assert list(contents.lacking(tmp_path, {"actor": DEFAULT})) == []


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"contents": []}', '{"contents": null}'])
def test_a_manifest_without_contents_leaves_the_step_to_its_engine(tmp_path: Path, text: str) -> None:
    (tmp_path / "actor").mkdir()
    (tmp_path / "actor" / contents.MEGATRON_FILE).write_text(text)
    assert list(contents.lacking(tmp_path, EVERYTHING)) == []


def test_a_manifest_that_cannot_be_read_is_no_empty_one(tmp_path: Path) -> None:
    (tmp_path / "actor").mkdir()
    (tmp_path / "actor" / contents.MEGATRON_FILE).symlink_to("/proc/self/mem")
    with pytest.raises(OSError, match=contents.MEGATRON_FILE):
        list(contents.lacking(tmp_path, EVERYTHING))


def test_only_what_is_loaded_is_asked_for(tmp_path: Path) -> None:
    write_manifest(tmp_path / "actor", "model")
    assert list(contents.lacking(tmp_path, {"actor": frozenset({MODEL})})) == []
    assert list(contents.lacking(tmp_path, {"actor": frozenset({OPTIMIZER})})) == ["actor optimizer"]


@pytest.mark.parametrize("value", [["model", "optimizer"], "model, optimizer"])
def test_what_is_not_saved_cannot_be_loaded(make_job: MakeJob, value: object) -> None:
    with pytest.raises(RefusedError, match="load_contents names extra, which save_contents does not"):
        contents.require(make_job(checkpoint_path="/saves"), config(save_contents=value), needs_critic=True)


SCHEDULES: list[dict[str, object]] = [
    {"lr_scheduler_type": "cosine"},
    {"lr_warmup_steps": 5},
    {"lr_warmup_steps_ratio": 0.1},
]


@pytest.mark.parametrize("optimizer", SCHEDULES)
def test_fsdps_schedule_must_be_saved_and_loaded(make_job: MakeJob, optimizer: Mapping[str, object]) -> None:
    job, both = make_job(checkpoint_path="/saves"), ["model", "optimizer"]
    for saved in (both, [*both, "extra"]):
        with pytest.raises(RefusedError, match="an attempt that resumes would begin the schedule again"):
            contents.require(
                job, config(optimizer=optimizer, save_contents=saved, load_contents=both), needs_critic=True
            )
    contents.require(job, config(optimizer=optimizer), needs_critic=True)
    contents.require(
        job,
        config(strategy="megatron", optimizer=optimizer, save_contents=both, load_contents=both),
        needs_critic=True,
    )
