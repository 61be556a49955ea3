"""Send many requests to one replica of verl, abort them, and print what was seen as JSON: `REQUESTS verl|ours FOLDER`.

A process of its own, because verl chooses its platform when it is imported.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import patient_ray  # type: ignore[import-not-found] # beside this file
import ray
from hydra import compose, initialize_config_module
from verl.utils.config import omega_conf_to_dataclass
from verl.workers.rollout.replica import get_rollout_replica_class

from rljob_runtime.spool.step_metrics import CONTROL_CALL_SECONDS
from rljob_runtime.verl_plugin.platform import cpu_defaults
from rljob_runtime.verl_plugin.router import replica
from rljob_runtime.verl_plugin.router.control_calls import ControlCalls

SECONDS = 120.0
SEQUENCES = 64
TOKENS = 400
"""Of each response: more than the first sequences generate until all requests have arrived."""
COUNTS = re.compile(r"^vllm:num_requests_(?:running|waiting)\{.*\} (\S+)$", re.MULTILINE)
TOKENS_OF_STEPS = re.compile(
    r'^vllm:rljob_(computed|padding)_tokens_total\{engine="0",mode="(\w+)"\} (\S+)$', re.MULTILINE
)
ROLLOUT = "actor_rollout_ref.rollout"


def write_model(folder: Path) -> None:
    """Write a tiny model with random weights and a tokenizer of letters."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = {name: number for number, name in enumerate(["<pad>", "<eos>", *"abcdefghijklmnopqrstuvwxyz"])}
    core = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>").save_pretrained(folder)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 2048}
    Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), **sizes, **heads)).save_pretrained(folder)


def configuration(model: Path) -> Any:
    """Return verl's configuration for one replica on CPUs."""
    overrides = {
        **{name: value for name, value in cpu_defaults.SETTINGS.items() if name.lstrip("+").startswith(ROLLOUT)},
        "actor_rollout_ref.model.path": str(model),
        f"{ROLLOUT}.name": "vllm",
        f"{ROLLOUT}.load_format": "dummy",
        f"{ROLLOUT}.max_num_seqs": SEQUENCES,
        f"{ROLLOUT}.prompt_length": 32,
        f"{ROLLOUT}.response_length": TOKENS,
        f"{ROLLOUT}.tensor_model_parallel_size": 1,
        f"{ROLLOUT}.n_gpus_per_node": 1,
        f"{ROLLOUT}.disable_log_stats": False,
    }
    with initialize_config_module("verl.trainer.config", version_base=None):
        return compose("ppo_trainer", overrides=[f"{name}={value}" for name, value in overrides.items()])


def metrics_of(address: str) -> str:
    """Return the page of the engine's own metrics."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=SECONDS) as answer:
        page: str = answer.read().decode()
    return page


def waiting_and_running(address: str) -> int:
    """Return how many requests the engine has, by its own metrics."""
    return sum(int(float(value)) for value in COUNTS.findall(metrics_of(address)))


async def begun(made: Any, requests: int) -> dict[str, Any]:
    """Start a replica, and measure it."""
    await made.init_standalone()
    return await measure(made, requests)


async def measure(made: Any, requests: int) -> dict[str, Any]:
    """Return the most requests that the engine had at a time, and how they ended after an abort."""
    options = {"sampling_params": {"temperature": 1.0, "ignore_eos": True, "max_tokens": TOKENS}}
    sent = [
        made.server_handle.generate.remote(prompt_ids=[2, 3, 4], request_id=f"request-{number}", **options)
        for number in range(requests)
    ]
    # Until as many as can have arrived, or no more come.
    peak, unchanged, deadline, calls = 0, 0, time.monotonic() + SECONDS, ControlCalls()
    while peak < requests and unchanged < 10:
        assert time.monotonic() < deadline
        calls.poll(replica.questions([made]))
        await asyncio.sleep(0.5)
        seen = await asyncio.to_thread(waiting_and_running, made.server_address)
        unchanged = 0 if seen > peak else unchanged + 1
        peak = max(peak, seen)
    control = calls.take().get(CONTROL_CALL_SECONDS)
    begun = time.monotonic()
    await made.abort_all_requests()
    seconds = time.monotonic() - begun
    ends = [output.stop_reason for output in await asyncio.gather(*sent)]
    steps = {
        f"{kind} {mode}": float(count) for kind, mode, count in TOKENS_OF_STEPS.findall(metrics_of(made.server_address))
    }
    ended = {"aborted": ends.count("aborted"), "completed": ends.count("completed")}
    return {"peak": peak, **ended, "seconds": seconds, "control_seconds": control, "tokens_of_steps": steps}


def main() -> None:
    """Start a private Ray and one replica."""
    requests, whose, folder = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    if whose == "ours":
        replica.register(lambda: requests)
    write_model(folder / "model")
    config = configuration(folder / "model")
    patient_ray.install()
    ray.init(
        num_cpus=2,
        resources={"NPU": 1},
        include_dashboard=False,
        log_to_driver=False,
        _temp_dir=str(folder / "r"),
        runtime_env={"env_vars": cpu_defaults.ENVIRONMENT},
    )
    try:
        rollout, model = config.actor_rollout_ref.rollout, omega_conf_to_dataclass(config.actor_rollout_ref.model)
        made = get_rollout_replica_class("vllm")(0, rollout, model, gpus_per_node=1)
        print(json.dumps(asyncio.run(begun(made, requests))))
    finally:
        ray.shutdown()


if __name__ == "__main__":
    main()
