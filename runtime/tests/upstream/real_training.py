"""Train a tiny model for some steps with verl, vLLM and our trainer, and print each step: `FOLDER JSON`.

The JSON has `steps` and, optionally, `name`, `platform` (cpu or npu), `devices`, `overrides`, `optimizations`,
`drafts`, `background` (whether saves are written behind), `auto_saves` (whether the trainer decides when),
`environment`, `mode` (trainer.mode), `rollout_devices` of mode SeparateAsync, `judge_devices`, `attempt`, of which the
second and later ones choose their start as the launcher does, `resume`, the folder of a saved step to start from
instead, `spread`, the standard deviation of the model's weights: the larger, the more certain are its tokens, `stop`,
the mode of a stop that is requested after the first step, or, with `stop_when`, when this file exists, and `forks`:
false starts every process by itself, as on NPUs.
A process of its own, because verl chooses its platform when it is imported. The folder keeps model and data for the
next run.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from rljob_runtime.checkpoints import claims, resume
from rljob_runtime.checkpoints.resume import Start
from rljob_runtime.contract import (
    CONTRACT_VERSION,
    ROLE_RESOURCES,
    Drafts,
    JobConfig,
    NodeGroup,
    Optimizations,
    Phase,
    Platform,
    Progress,
    Role,
    StopMode,
    TrainerMode,
)
from rljob_runtime.fork_server import start as fork_server
from rljob_runtime.preflight import Attempt
from rljob_runtime.spool.spool import Spool
from rljob_runtime.trainer import Setup
from rljob_runtime.verl_plugin.launcher import VerlTrainer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
PROMPTS = 32
APART = {
    "actor_rollout_ref.hybrid_engine": False,
    "actor_rollout_ref.rollout.nnodes": 1,
    "actor_rollout_ref.rollout.checkpoint_engine.backend": "rljob_tcp",
    "actor_rollout_ref.rollout.checkpoint_engine.custom_backend_module": "rljob_runtime.verl_plugin.weights.tcp_engine",
}
"""What the operator sets for a job whose trainer and rollout stand apart."""
JUDGED = {
    "reward.reward_model.enable": True,
    "reward.reward_model.enable_resource_pool": True,
    "reward.reward_model.nnodes": 1,
    "reward.reward_model.rollout.name": "vllm",
    "reward.reward_model.rollout.tensor_model_parallel_size": 1,
    "reward.reward_model.rollout.max_model_len": 64,
    "reward.reward_model.rollout.free_cache_engine": False,
}
"""What the operator sets for a job with a judge, which is the model of the policy at its start."""
REWARD = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None, **_):
    return sum(ord(c) % 7 == ord(ground_truth) % 7 for c in solution_str) / max(len(solution_str), 1)
"""
TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


def write_tokenizer(folder: Path) -> int:
    """Write a tokenizer whose tokens are bytes, and return the size of its vocabulary."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<eos>", "<user>", "<assistant>"]
    vocabulary = [*special, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE(vocab={token: number for number, token in enumerate(vocabulary)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    tokens = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<pad>",
        additional_special_tokens=special[2:],
    )
    tokens.chat_template = TEMPLATE
    tokens.save_pretrained(folder)
    return len(vocabulary)


def write_data(folder: Path) -> None:
    """Write prompts and a reward function."""
    import pandas as pd

    rows = [
        {
            "prompt": [{"role": "user", "content": LETTERS[number % 26] * 3}],
            "data_source": "letters",
            "reward_model": {"style": "rule", "ground_truth": LETTERS[number % 26]},
            "extra_info": {"row": number},
        }
        for number in range(PROMPTS)
    ]
    pd.DataFrame(rows).to_parquet(folder / "train.parquet")
    (folder / "reward.py").write_text(REWARD)


def write_inputs(folder: Path, spread: float) -> None:
    """Write a model with random weights, its tokenizer and the data."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    vocabulary = write_tokenizer(folder / "model")
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 512}
    ends = {"bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
    config = Qwen2Config(vocab_size=vocabulary, initializer_range=spread, **sizes, **heads, **ends)
    Qwen2ForCausalLM(config).save_pretrained(folder / "model")
    write_data(folder)


def job_of(folder: Path, wish: dict[str, Any]) -> JobConfig:
    """Return the job of one run."""
    rollout = "actor_rollout_ref.rollout"
    overrides = {
        "algorithm.adv_estimator": "grpo",
        "data.train_files": [str(folder / "train.parquet")],
        "data.val_files": [str(folder / "train.parquet")],
        "data.train_batch_size": 8,
        "data.max_prompt_length": 16,
        "data.max_response_length": 16,
        "data.shuffle": False,
        "reward.custom_reward_function.path": str(folder / "reward.py"),
        "reward.custom_reward_function.name": "compute_score",
        "actor_rollout_ref.model.path": str(folder / "model"),
        "actor_rollout_ref.actor.ppo_mini_batch_size": 8,
        "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu": 16,
        f"{rollout}.log_prob_micro_batch_size_per_gpu": 16,
        "actor_rollout_ref.actor.use_kl_loss": False,
        "actor_rollout_ref.actor.optim.lr": 5e-4,
        f"{rollout}.n": 4,
        f"{rollout}.tensor_model_parallel_size": 1,
        f"{rollout}.max_model_len": 64,
        f"{rollout}.calculate_log_probs": True,
        "trainer.test_freq": -1,
        **wish.get("overrides", {}),
    }
    name, groups = str(wish.get("name", "run")), groups_of(wish)
    by_role = {group.role: group for group in groups}
    if Role.ROLLOUT in by_role:
        overrides |= {**APART, f"{rollout}.n_gpus_per_node": by_role[Role.ROLLOUT].devices}
    if Role.JUDGE in by_role:
        overrides |= {**JUDGED, "reward.reward_model.n_gpus_per_node": by_role[Role.JUDGE].devices}
        overrides["reward.reward_model.model_path"] = str(folder / "model")
    return JobConfig(
        version=CONTRACT_VERSION,
        namespace="tests",
        name="real-training",
        uid=name,
        cluster_name=f"{name}-{os.getpid()}",  # it names the fork server
        cluster_generation=1,
        platform=Platform(wish.get("platform", "cpu")),
        nodes=max(1, len(groups)),
        devices=sum(group.devices for group in groups) or int(wish.get("devices", 1)),
        dies_per_card=1,
        total_steps=int(wish["steps"]),
        overrides=overrides,
        checkpoint_path=str(folder / name / "checkpoints"),
        optimizations=Optimizations(**wish.get("optimizations", {})),
        mode=TrainerMode(wish.get("mode", "Sync")),
        groups=groups,
        drafts=Drafts(**wish["drafts"]) if "drafts" in wish else None,
        background_saves=bool(wish.get("background", False)),
        auto_saves=bool(wish.get("auto_saves", False)),
    )


def groups_of(wish: dict[str, Any]) -> tuple[NodeGroup, ...]:
    """Return the groups of a job whose groups have different roles."""
    others = [
        NodeGroup(role.lower(), role, 1, int(wish[f"{role.lower()}_devices"]))
        for role in (Role.ROLLOUT, Role.JUDGE)
        if f"{role.lower()}_devices" in wish
    ]
    return (NodeGroup("train", Role.TRAINER, 1, int(wish.get("devices", 1))), *others) if others else ()


def main() -> None:
    """Run it, and print the records of its steps and its notes as JSON."""
    folder, wish = Path(sys.argv[1]).absolute(), json.loads(sys.argv[2])
    if not (folder / "reward.py").exists():
        write_inputs(folder, float(wish.get("spread", 0.02)))
    job = job_of(folder, wish)
    own = folder / job.uid
    spool, scratch = Spool(own / "spool"), own / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    attempt = int(wish.get("attempt", 1))
    spool.write_progress(Progress(pod_uid="p", phase=Phase.TRAINING, attempt=attempt))
    Path(str(job.checkpoint_path)).mkdir(parents=True, exist_ok=True)
    claims.claim(Path(str(job.checkpoint_path)), claims.Owner.of(job, attempt))
    trainer = VerlTrainer()
    variables = {**trainer.environment(job, os.environ), **wish.get("environment", {})}
    if not wish.get("forks", True):
        variables.pop(fork_server.VARIABLE, None)
    os.environ.update(variables)
    trainer.prepare(Setup(job, attempt, spool, scratch, variables))
    if attempt > 1:
        own_attempt = Attempt(attempt, job.cluster_name, "p", spool.root)
        trainer.begin_at(resume.choose(job, own_attempt, trainer.loads, only_evaluates=False))
    elif "resume" in wish:
        saved = Path(wish["resume"])
        trainer.begin_at(Start(saved, int(saved.name.removeprefix("global_step_"))))
    with tempfile.TemporaryDirectory(prefix="rlt-", dir="/tmp") as sockets:
        let_ray_take_its_time()
        use_own_ray(trainer, sockets, job)
        if "stop" in wish:
            asked = (trainer, own, wish["stop"], wish.get("stop_when"))
            threading.Thread(target=stop, args=asked, daemon=True).start()
        result = trainer.run(lambda: None)
        import ray

        ray.shutdown()
    progress = spool.progress()
    found = {
        "steps": recorded(own),
        "notes": progress.notes if progress else (),
        "last": result.step,
        "stopped": result.stopped_by and result.stopped_by.value,
        "abandoned": result.abandoned_step,
    }
    print(json.dumps(found))


def recorded(own: Path) -> list[dict[str, Any]]:
    """Return the records of the steps so far."""
    return [json.loads(line) for path in own.glob("spool/**/steps.jsonl") for line in path.read_text().splitlines()]


def stop(trainer: VerlTrainer, own: Path, mode: str, when: str | None) -> None:
    """Request a stop when the first step is recorded, or when a file exists."""
    while not (recorded(own) if when is None else Path(when).exists()):
        time.sleep(0.1)
    trainer.request_stop(StopMode(mode))


def let_ray_take_its_time() -> None:
    """See patient_ray.py, which is beside this file; who imports this module for its inputs needs no Ray."""
    import patient_ray  # type: ignore[import-not-found]

    patient_ray.install()


def use_own_ray(trainer: VerlTrainer, sockets: str, job: JobConfig) -> None:
    """Let verl start a Ray of its own, of one node with all roles, instead of joining the job's cluster."""
    from omegaconf import OmegaConf

    settings = {"address": "local", "_temp_dir": sockets, "num_cpus": 24, "include_dashboard": False}
    roles = {f"resources.{ROLE_RESOURCES[group.role]}": 1 for group in job.groups}
    for name, value in {**settings, **roles, "resources.NPU": job.devices}.items():
        OmegaConf.update(trainer._composed, f"ray_kwargs.ray_init.{name}", value, force_add=True)


if __name__ == "__main__":
    main()
