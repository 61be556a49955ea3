"""vLLM with vllm-ascend's worker and runner on an emulated NPU: generate, sleep, get weights, generate: `MODEL JSON`.

The JSON has further arguments of `vllm.LLM`. Prints a line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

PROMPTS = ([2, 20, 21, 22, 3], [2, 40, 41, 42, 43, 44, 3])
TOKENS = 12


def reference(model: str) -> list[list[int]]:
    """Return what transformers generates in float32 on the CPU."""
    import torch
    from transformers import AutoModelForCausalLM

    loaded = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        made = [
            loaded.generate(torch.tensor([prompt]), max_new_tokens=TOKENS, do_sample=False, eos_token_id=None)
            for prompt in PROMPTS
        ]
    return [each[0].tolist()[len(prompt) :] for each, prompt in zip(made, PROMPTS, strict=True)]


def update(worker: Any, model: str) -> None:
    """Load the weights again, as verl 0.9.1 does in each step (workers/rollout/vllm_rollout/utils.py:294-353)."""
    from safetensors.torch import load_file
    from verl.utils.vllm.patch import patch_vllm_moe_model_weight_loader
    from vllm.model_executor.model_loader.utils import process_weights_after_loading

    runner = worker.model_runner
    patch_vllm_moe_model_weight_loader(runner.model)
    runner.model.load_weights(load_file(f"{model}/model.safetensors").items())
    process_weights_after_loading(runner.model, runner.vllm_config.model_config, worker.device)


def main(model: str, text: str) -> None:
    """Run it."""
    from vllm import LLM, SamplingParams

    engine = LLM(
        model,
        enforce_eager=True,
        max_model_len=128,
        max_num_seqs=8,
        max_num_batched_tokens=128,
        enable_sleep_mode=True,
        gpu_memory_utilization=0.3,
        seed=1,
        dtype="bfloat16",
        additional_config={"weight_nz_mode": 0, "enable_cpu_binding": False},
        **json.loads(text),
    )
    worker = engine.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    drafter = getattr(worker.model_runner, "drafter", None)
    inputs = [{"prompt_token_ids": prompt} for prompt in PROMPTS]

    def generate(**parameters: Any) -> list[list[int]]:
        chosen = SamplingParams(max_tokens=TOKENS, ignore_eos=True, **parameters)
        return [list(each.outputs[0].token_ids) for each in engine.generate(inputs, chosen, use_tqdm=False)]

    greedy = generate(temperature=0)
    sampled = generate(temperature=1, top_p=0.9)
    store = getattr(drafter, "_rljob_store", None)
    engine.sleep(level=1)
    engine.wake_up()
    # vllm-ascend 0.23.0 transposes experts when it wakes, for weights that follow (worker/worker.py:248-269).
    has_experts = any("w13_weight" in name for name, _ in worker.model_runner.model.named_parameters())
    awake = None if has_experts else generate(temperature=0)
    update(worker, model)
    from emulated_npu.operators import USED

    found = {
        "worker": type(worker).__qualname__,
        "runner": type(worker.model_runner).__qualname__,
        "drafter": type(drafter).__qualname__,
        "reference": reference(model),
        "greedy": greedy,
        "sampled": sampled,
        "after sleep": awake,
        "after update": generate(temperature=0),
        "drafts": None if store is None else repr(store._counts),
        "operators": sorted(USED),
    }
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
