"""The model's own config.json on the head: the verdict that `rljob validate` gives where a job states its model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from rljob_runtime import model_check
from rljob_runtime.contract import ExitCode, Phase, Progress
from rljob_runtime.outcomes import RefusedError
from rljob_runtime.spool.spool import Spool
from rljob_runtime.trainer import Setup
from rljob_runtime.verl_plugin.launcher import VerlTrainer
from runtime.tests.conftest import MakeJob

CONFIG = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
}
TENSOR = "actor_rollout_ref.rollout.tensor_model_parallel_size"


def model(folder: Path, config: Mapping[str, object] = CONFIG) -> dict[str, str]:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    return {"actor_rollout_ref.model.path": str(folder)}


def refusal(make_job: MakeJob, **overrides: object) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        model_check.require(make_job(overrides=overrides))
    assert caught.value.code == ExitCode.BAD_CONFIG
    return caught.value


def test_sizes_that_the_model_allows_pass(make_job: MakeJob, tmp_path: Path) -> None:
    model_check.require(make_job(overrides=model(tmp_path / "m") | {TENSOR: 2}))


def test_sizes_that_the_model_refuses_are_named_with_field_file_and_fix(make_job: MakeJob, tmp_path: Path) -> None:
    error = refusal(make_job, **model(tmp_path / "m"), **{TENSOR: 4})
    assert error.reason == "ModelMismatch"
    where = f"num_attention_heads 14 of {tmp_path}/m/config.json"
    assert str(error) == f"rollout.parallelism.tensor: 4 does not divide {where}; use one of 1, 2"


def test_the_trainer_asks_before_it_composes_anything(make_job: MakeJob, tmp_path: Path, spool: Spool) -> None:
    job = make_job(overrides=model(tmp_path / "m") | {TENSOR: 4})
    spool.write_progress(Progress("pod", Phase.STARTING, attempt=1))
    with pytest.raises(RefusedError, match="4 does not divide num_attention_heads 14"):
        VerlTrainer().prepare(Setup(job, 1, spool, tmp_path, {}))


def test_every_refused_size_is_named(make_job: MakeJob, tmp_path: Path) -> None:
    sizes = {TENSOR: 4, "actor_rollout_ref.actor.ulysses_sequence_parallel_size": 3}
    message = str(refusal(make_job, **model(tmp_path / "m"), **sizes))
    assert "trainer.parallelism.sequence: 3" in message
    assert "rollout.parallelism.tensor: 4" in message


def test_a_doubt_is_printed_and_does_not_end_the_run(
    make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lengths = {"data.max_prompt_length": 1024, "data.max_response_length": 32768}
    model_check.require(make_job(overrides=model(tmp_path / "m") | lengths))
    assert "rljob: warning: data.maxResponseTokens: " in capsys.readouterr().err


def test_a_critic_of_its_own_is_judged_by_its_own_config(make_job: MakeJob, tmp_path: Path) -> None:
    sizes = {"critic.fsdp.ulysses_sequence_parallel_size": 4, TENSOR: 2}
    critic = model(tmp_path / "c")["actor_rollout_ref.model.path"]
    actor = model(tmp_path / "m", CONFIG | {"num_attention_heads": 16})
    error = refusal(make_job, **actor, **sizes, **{"critic.model.path": critic})
    assert f"trainer.parallelism.sequence: 4 does not divide num_attention_heads 14 of {critic}" in str(error)
    # The same folder is judged once, as the actor's.
    model_check.require(
        make_job(overrides=actor | sizes | {"critic.model.path": actor["actor_rollout_ref.model.path"]})
    )


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "is not a JSON object"),
        (" " * (model_check.CONFIG_BYTES_MAX + 1), "has more than 4 MiB"),
    ],
)
def test_a_file_that_is_no_config_is_refused(make_job: MakeJob, tmp_path: Path, content: str, problem: str) -> None:
    overrides = model(tmp_path / "m")
    (tmp_path / "m" / "config.json").write_text(content)
    error = refusal(make_job, **overrides)
    assert error.reason == "ModelConfigInvalid"
    assert str(error).startswith(f"model.path: {tmp_path}/m/config.json {problem}; ")


def test_what_cannot_be_read_is_left_to_the_node_checks(
    make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = make_job(overrides={"actor_rollout_ref.model.path": str(tmp_path), "critic.model.path": str(tmp_path / "c")})
    model_check.require(job)
    model_check.require(make_job(overrides={}))
    os.mkfifo(tmp_path / "config.json")
    model_check.require(job)
    assert capsys.readouterr().err == ""


def test_a_volume_that_hangs_does_not_hold_the_start(
    make_job: MakeJob, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_check, "READ_SECONDS", 0.05)
    fifo = tmp_path / "pipe"
    os.mkfifo(fifo)
    monkeypatch.setattr(Path, "is_file", lambda _: True)
    (tmp_path / "config.json").symlink_to(fifo)
    model_check.require(make_job(overrides={"actor_rollout_ref.model.path": str(tmp_path)}))
    assert "config.json was not checked: no answer within 0.05 s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"lora_rank": 8, "lora_alpha": 16}, ""),
        ({"lora_rank": 4, "lora_alpha": 16}, "trainer.lora.rank: 4, but 8 in "),
        ({"lora_rank": 0, "lora_alpha": 16}, "trainer.lora.rank: 0, but 8 in "),
        ({"lora_rank": 8, "lora_alpha": 32}, "trainer.lora.alpha: 32, but 16 in "),
        ({"lora_rank": 8, "lora_alpha": 32, "lora_adapter_path": "/a"}, ""),
    ],
)
def test_a_step_with_another_adapter_is_refused(tmp_path: Path, model: dict[str, object], message: str) -> None:
    model_check.require_adapter(tmp_path, model)  # without an adapter
    (tmp_path / "actor").mkdir()
    (tmp_path / "actor" / "lora_train_meta.json").write_text('{"r": 8, "lora_alpha": 16, "task_type": "CAUSAL_LM"}')
    if not message:
        model_check.require_adapter(tmp_path, model)
        return
    with pytest.raises(RefusedError) as caught:
        model_check.require_adapter(tmp_path, model)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"r": 16}, "trainer.lora.rank: 8, but r is 16 in {}/adapter_config.json; set it to that"),
        ({"r": 8, "use_rslora": True}, "trainer.lora.path: {}/adapter_config.json has use_rslora"),
        ({"r": 8, "use_dora": True}, "trainer.lora.path: {}/adapter_config.json has use_dora"),
        ({"r": 8, "alpha_pattern": {"q_proj": 4}}, "trainer.lora.path: {}/adapter_config.json has alpha_pattern"),
    ],
)
def test_an_adapter_that_is_another_one_than_stated_is_refused(
    make_job: MakeJob, tmp_path: Path, config: dict[str, object], message: str
) -> None:
    (tmp_path / "adapter_config.json").write_text(json.dumps(config))
    model = "actor_rollout_ref.model"
    keys = {f"{model}.lora_adapter_path": str(tmp_path), f"{model}.lora_rank": 8}
    assert str(refusal(make_job, **keys)).startswith(message.format(tmp_path))
    (tmp_path / "adapter_config.json").write_text('{"r": 8, "use_rslora": false, "bias": "none", "rank_pattern": {}}')
    model_check.require(make_job(overrides=keys))
