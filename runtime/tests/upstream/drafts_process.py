"""Generate with one engine of vLLM on CPUs, with or without drafts, and print what was seen as JSON.

`FOLDER SETTINGS [epochs]`, where SETTINGS is `none`, `upstream` (vLLM's suffix decoding as it is) or the JSON of
`Drafts`; `FOLDER model` writes the model into the folder. A process of its own, because plug-ins are installed once per
process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

REQUESTS = 16
TOKENS = 200
LENGTHS = tuple(40 + 10 * number for number in range(REQUESTS))
"""Of the responses, so that fewer and fewer run."""
EPOCHS, GROUP = 2, 4
"""Of the comparison of epochs: each prompt is asked so many times in each."""
SURE = 0.6
"""A temperature at which the tiny model is about as sure as a trained one."""
SEED = 7
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_model(folder: Path) -> None:
    """Write a tiny model whose next token is rather certain, so that its texts repeat themselves."""
    import torch
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    words = {name: number for number, name in enumerate(["<pad>", "<eos>", *LETTERS])}
    core = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    PreTrainedTokenizerFast(tokenizer_object=core, pad_token="<pad>", eos_token="<eos>").save_pretrained(folder)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 2048}
    torch.manual_seed(SEED)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=len(words), initializer_range=0.35, **sizes, **heads))
    model.save_pretrained(folder)


def engine(folder: Path, settings: str) -> Any:
    """Return an engine in this process."""
    from vllm import LLM

    speculative = {"method": "suffix", "num_speculative_tokens": 3}
    return LLM(
        model=str(folder),
        dtype="float32",
        enforce_eager=True,
        max_model_len=512,
        max_num_seqs=REQUESTS,
        kv_cache_memory_bytes=64 << 20,
        gpu_memory_utilization=0.1,
        disable_log_stats=False,
        enable_prefix_caching=False,
        logprobs_mode="processed_logprobs",
        speculative_config=None if settings == "none" else speculative,
        seed=SEED,
    )


def steps_of(llm: Any) -> int:
    """Return the number of engine steps that generated something so far."""
    (metric,) = (metric for metric in llm.get_metrics() if metric.name == "vllm:iteration_tokens_total")
    return int(metric.count)


def generate(llm: Any, temperature: float) -> dict[str, Any]:
    """Return tokens, steps, and how far log-probabilities of tokens are from those of one pass over the whole text."""
    from vllm import SamplingParams

    prompts = [{"prompt_token_ids": [2 + number, 5, 3 + number % 4, 2]} for number in range(REQUESTS)]
    asked = [
        SamplingParams(temperature=temperature, max_tokens=length, ignore_eos=True, logprobs=0, seed=SEED + number)
        for number, length in enumerate(LENGTHS)
    ]
    begun = steps_of(llm)
    outputs = [output.outputs[0] for output in llm.generate(prompts, asked, use_tqdm=False)]
    steps = steps_of(llm) - begun
    whole = [
        {"prompt_token_ids": [*prompt["prompt_token_ids"], *output.token_ids]}
        for prompt, output in zip(prompts, outputs, strict=True)
    ]
    again = llm.generate(whole, SamplingParams(max_tokens=1, prompt_logprobs=0), use_tqdm=False)
    differences, total = [], 0.0
    for output, scored in zip(outputs, again, strict=True):
        expected = scored.prompt_logprobs[-len(output.token_ids) :]
        for token, seen, other in zip(output.token_ids, output.logprobs, expected, strict=True):
            differences.append(abs(seen[token].logprob - other[token].logprob))
            total += seen[token].logprob
    return {
        "tokens": [list(output.token_ids) for output in outputs],
        "steps": steps,
        "difference": sum(differences) / len(differences),
        "logprob": total / len(differences),
    }


def epochs(llm: Any) -> list[dict[str, Any]]:
    """Ask the same prompts in each epoch, with the best responses of one sent before the next as the trainer does."""
    import numpy as np
    from vllm import SamplingParams

    from rljob_runtime.verl_plugin.drafts import records_of
    from rljob_runtime.vllm_plugin import drafts

    prompts = [[2 + number, 5, 3 + number % 4, 2] for number in range(REQUESTS) for _ in range(GROUP)]
    seen = []
    for epoch in range(EPOCHS):
        asked = [
            SamplingParams(temperature=SURE, max_tokens=TOKENS, ignore_eos=True, seed=SEED + epoch * len(prompts) + row)
            for row in range(len(prompts))
        ]
        begun = steps_of(llm)
        outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], asked, use_tqdm=False)
        responses = [np.array(output.outputs[0].token_ids, np.int32) for output in outputs]
        steps = steps_of(llm) - begun
        # A reward that some responses of a prompt earn.
        rewards = [float((response % 2).mean()) for response in responses]
        records = list(records_of([np.array(p, np.int32) for p in prompts], responses, rewards, 1 << 24))
        (counts,) = llm.collective_rpc(drafts.EXCHANGE, args=(records,))
        seen.append({"steps": steps, "tokens": sum(map(len, responses)), **counts})
    return seen


def store_of(llm: Any) -> Any:
    """Return our store of drafts in the engine's worker."""
    from rljob_runtime.vllm_plugin import drafts

    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    return getattr(worker.model_runner.drafter, drafts.STORE)


def main() -> None:
    """Generate greedily and by sampling."""
    folder, settings = Path(sys.argv[1]), sys.argv[2]
    if settings == "model":
        write_model(folder)
        return
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    if settings not in {"none", "upstream"}:
        from rljob_runtime.contract import DRAFTS_VARIABLE

        os.environ[DRAFTS_VARIABLE] = settings
    llm = engine(folder, settings)
    if sys.argv[3:] == ["epochs"]:
        print(json.dumps(epochs(llm)))
        return
    found: dict[str, Any] = {"greedy": generate(llm, 0.0)}
    if settings != "upstream":
        found["sampled"] = generate(llm, 1.0)
    if settings not in {"none", "upstream"}:
        store = store_of(llm)
        # The last step of a rollout has nothing after it: its requests end at the next.
        found["left"] = len(store.requests)
        from rljob_runtime.vllm_plugin import drafts

        (found["counts"],) = llm.collective_rpc(drafts.EXCHANGE, args=([],))
    print(json.dumps(found))


if __name__ == "__main__":
    main()
