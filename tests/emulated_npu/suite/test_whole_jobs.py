"""Whole jobs of RLJob's trainer: GRPO with MindSpeed's Megatron or FSDP2, vllm-ascend's rollout, stop and resume."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.contract import EXPORT_MANIFEST, ExportPlace, ExportRequest, JobConfig

pytestmark = pytest.mark.long

ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
COMMON = {
    "trainer.device": "npu",
    "trainer.save_freq": 1,
    "actor_rollout_ref.model.use_remove_padding": True,
    f"{ROLLOUT}.name": "vllm",
    f"{ROLLOUT}.max_num_batched_tokens": 128,
    f"{ROLLOUT}.max_num_seqs": 16,
    f"{ROLLOUT}.gpu_memory_utilization": 0.3,
    f"{ROLLOUT}.enforce_eager": True,
    f"+{ROLLOUT}.engine_kwargs.vllm.additional_config.weight_nz_mode": 0,
    f"+{ROLLOUT}.engine_kwargs.vllm.additional_config.enable_cpu_binding": False,
    f"{ROLLOUT}.agent.num_workers": 1,
    "reward.num_workers": 1,
}
MEGATRON = {
    "model_engine": "megatron",
    f"{ACTOR}.strategy": "megatron",
    "actor_rollout_ref.ref.strategy": "megatron",
    f"{ACTOR}.megatron.vanilla_mbridge": True,
    f"{ACTOR}.megatron.param_offload": True,
    f"{ACTOR}.megatron.optimizer_offload": True,
}
CRITIC = {
    "algorithm.adv_estimator": "gae",
    "critic.strategy": "fsdp2",
    "critic.optim.lr": 1e-3,
    "critic.ppo_micro_batch_size_per_gpu": 16,
}
FSDP2 = {f"{ACTOR}.strategy": "fsdp2", f"{ACTOR}.fsdp_config.param_offload": True}
RECIPES = {"qwen2-5-0-5b-gsm8k-a2": "dense", "qwen2-5-1-5b-math-a2": "dense", "qwen3-8b-grpo-a2": "qwen3"}
"""Built-in recipes for FSDP2; flags.json has those for MindSpeed."""
SMALL = {
    "data.train_batch_size": 16,
    "data.max_prompt_length": 16,
    "data.max_response_length": 16,
    f"{ACTOR}.ppo_mini_batch_size": 16,
}
"""What a model of two layers has in place of a recipe's values. The ranks' shares of 16 prompts fill micro batches."""
PLACES = (
    *("actor_rollout_ref.model.path", "data.train_files", "data.val_files", "reward."),
    *("trainer.default_local_dir", "trainer.logger", "trainer.nnodes", "trainer.n_gpus_per_node", "trainer.test_freq"),
    *("trainer.total_", f"{ROLLOUT}.gpu_memory_utilization", f"+{ROLLOUT}.engine_kwargs"),
)
"""Starts of keys whose values are of a volume, of a number of devices, or in COMMON."""
SWITCHES = {
    f"{ROLLOUT}.max_num_seqs": 16,
    f"{ROLLOUT}.max_model_len": 96,
    f"{ROLLOUT}.temperature": 0.3,
    "data.max_response_length": 48,
    f"{ACTOR}.optim.lr": 1e-5,
    f"+{ROLLOUT}.engine_kwargs.vllm.speculative_config.method": "suffix",
    f"+{ROLLOUT}.engine_kwargs.vllm.speculative_config.num_speculative_tokens": 3,
}
STILL = {"trainer.critic_warmup": 100}
"""The actor is not trained before this step."""


@pytest.fixture(scope="module")
def folder(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the jobs' own folders, with the models and data."""
    target = tmp_path_factory.mktemp("jobs")
    for name in ("dense", "experts", "qwen3"):
        shutil.copytree(models / name, target / name)
    return target


PROGRAM = str(Path(os.environ.get("RLJOB_UPSTREAM", ""), "real_training.py"))
SECONDS = 1_200.0


def text(name: str, steps: int, *overrides: dict[str, Any], **wish: Any) -> str:
    """Return the argument of real_training.py for a job."""
    settings = {key: value for each in (COMMON, *overrides) for key, value in each.items()}
    return json.dumps({"name": name, "platform": "npu", "steps": steps, "overrides": settings, **wish})


@pytest.fixture(scope="module")
def job(run: Any, folder: Path) -> Any:
    """Return a function that runs a job of real_training.py and returns what it printed."""

    def ran(model: str, name: str, steps: int, *overrides: dict[str, Any], **wish: Any) -> dict[str, Any]:
        printed = run(PROGRAM, str(folder / model), text(name, steps, *overrides, **wish))
        found: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return found

    return ran


def kill_after(checkpoint: Path, *words: str) -> None:
    """Run a job, and kill it and its processes when a checkpoint is there."""
    process = subprocess.Popen((sys.executable, PROGRAM, *words), start_new_session=True)
    try:
        deadline = time.monotonic() + SECONDS
        while not checkpoint.is_dir():
            assert process.poll() is None, "the job ended by itself"
            assert time.monotonic() < deadline, f"no {checkpoint}"
            time.sleep(0.2)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def weights(folder: Path, step: int) -> bytes:
    """Return the weights of the actor in a checkpoint, by Hugging Face's names."""
    (file,) = (folder / f"checkpoints/global_step_{step}/actor").rglob("*.safetensors")
    return file.read_bytes()


@pytest.fixture(scope="module")
def stopped(job: Any, folder: Path) -> tuple[dict[str, Any], Path]:
    """Return what a job found that was stopped after its first step, and its folder."""
    found = job("dense", "stopped", 3, MEGATRON, stop="AfterStep")
    return found, folder / "dense/stopped"


@pytest.mark.usefixtures("mindspeed")
def test_a_stop_ends_the_job_after_its_step_with_a_checkpoint(stopped: tuple[dict[str, Any], Path]) -> None:
    found, own = stopped
    assert (found["stopped"], found["last"]) == ("AfterStep", len(found["steps"]))
    assert found["last"] < 3
    metrics = found["steps"][0]["metrics"]
    assert metrics["actor/grad_norm"] > 0
    # The rollout has the trainer's weights: both give nearly the same probabilities to what was generated.
    assert metrics["training/rollout_probs_diff_mean"] < 0.01
    assert (own / f"checkpoints/global_step_{found['last']}").is_dir()


@pytest.mark.usefixtures("mindspeed")
def test_jobs_that_are_resumed_have_the_parameters_that_were_saved(
    job: Any, folder: Path, stopped: tuple[dict[str, Any], Path]
) -> None:
    found, own = stopped
    first, second = found["last"] + 1, found["last"] + 2
    killed, resumed = own.parent / "killed", own.parent / "resumed"
    saved = str(own / f"checkpoints/global_step_{found['last']}")
    words = text("killed", second + 1, MEGATRON, STILL, resume=saved)
    kill_after(killed / f"checkpoints/global_step_{first}", str(folder / "dense"), words)
    assert weights(killed, first) == weights(own, found["last"])
    saved = str(killed / f"checkpoints/global_step_{first}")
    again = job("dense", "resumed", second, MEGATRON, resume=saved)
    assert [step["step"] for step in again["steps"]] == [second]
    assert weights(resumed, second) != weights(killed, first)


@pytest.mark.usefixtures("mindspeed")
def test_a_checkpoint_of_megatron_is_exported(stopped: tuple[dict[str, Any], Path], tmp_path: Path) -> None:
    from safetensors.torch import load, load_file

    found, own = stopped
    request = ExportRequest(
        "tests", "run", "run", str(own / "checkpoints"), found["last"], ExportPlace.FOLDER, folder=str(tmp_path)
    )
    words = (sys.executable, "-m", "rljob_runtime", "export", request.to_json().decode())
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    place = tmp_path / f"global_step_{found['last']}"
    assert json.loads((place / EXPORT_MANIFEST).read_text())["step"] == found["last"]
    exported = {name: value for file in place.glob("*.safetensors") for name, value in load_file(file).items()}
    trained = load(weights(own, found["last"]))
    assert exported.keys() == trained.keys()
    assert all(exported[name].equal(trained[name].to(exported[name].dtype)) for name in exported)


def test_fsdp2_trains_experts(job: Any) -> None:
    found = job("experts", "fsdp2", 1, FSDP2)
    assert found["steps"][0]["metrics"]["training/rollout_probs_diff_mean"] < 0.01


def test_ppo_trains_a_critic(job: Any, folder: Path) -> None:
    found = job("dense", "ppo", 2, FSDP2, CRITIC, {"critic.model.path": str(folder / "dense/model")})
    assert [step["metrics"]["critic/vf_loss"] > 0 for step in found["steps"]] == [True, True]
    assert found["steps"][1]["metrics"]["training/rollout_probs_diff_mean"] < 0.01
    assert list((folder / "dense/ppo/checkpoints/global_step_2/critic").glob("model_world_size_1_rank_0.pt"))


@pytest.mark.usefixtures("mindspeed")
def test_mindspeed_trains_experts(job: Any) -> None:
    found = job("experts", "megatron", 1, MEGATRON)
    assert found["steps"][0]["metrics"]["training/rollout_probs_diff_mean"] < 0.01


def of_recipe(name: str) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return a recipe's own keys but those of SMALL and PLACES, its switches, and the devices of a group of ranks."""
    job = JobConfig.from_json(Path(os.environ["RLJOB_JOBS"], f"{name}.json").read_bytes())
    keys = {key: value for key, value in job.overrides.items() if not key.startswith(PLACES)}
    sharded = [key for key in keys if key.endswith(("tensor_model_parallel_size", "ulysses_sequence_parallel_size"))]
    devices = min(2, max(int(str(keys[key])) for key in sharded))
    keys |= {key: min(devices, int(str(keys[key]))) for key in sharded}
    return keys, dataclasses.asdict(job.optimizations), devices


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_recipe_trains_with_its_own_flags(job: Any, recipe: str) -> None:
    keys, optimizations, devices = of_recipe(recipe)
    found = job(RECIPES[recipe], recipe, 1, keys, SMALL, optimizations=optimizations, devices=devices)
    metrics = found["steps"][0]["metrics"]
    assert metrics["actor/grad_norm"] > 0
    assert metrics["training/rollout_probs_diff_mean"] < 0.01


@pytest.mark.xfail(
    strict=True,
    reason="with drafts and temperature 0.3, the engine's log-probabilities are not the trainer's: the mean difference "
    "is 0.14, and nobody has found out whether vllm-ascend's sampler or the emulation causes it",
)
def test_the_switches_of_a_job_take_effect(job: Any) -> None:
    """With the classes of vllm-ascend, whose engine drafts, sleeps and gets weights in each step."""
    switches = {"skip_old_log_prob": True, "gc_freeze": True, "late_binding": True, "sleep_level": 2}
    drafts = {"max_sequences": 1_000, "history_bytes": 1 << 26, "needs_suffix_trees": True}
    found = job("dense", "switches", 5, FSDP2, SWITCHES, optimizations=switches, drafts=drafts)
    steps = [step["metrics"] for step in found["steps"]]
    assert len(steps) == 5
    for step in steps:
        assert (step["actor/ppo_kl"], step["actor/pg_clipfrac"]) == (0.0, 0.0)
        assert step["training/rollout_probs_diff_mean"] < 0.01
        assert step["rljob/replica/0/requests"] == 32
        assert step["rollout/draft_steps_ratio"] == 1
        assert step["rollout/spec_accept_length"] > 1
    # The prompts of the fifth step are those of the first.
    assert steps[4]["rollout/draft_tokens_accepted/history"] > 0
