"""Generate with one engine of vLLM on CPUs that drafts, and print what was seen as JSON.

`FOLDER letters SETTINGS ...`, each the JSON of `Drafts`, and `FOLDER topics SETTINGS`: the second word is the model,
which is written into the folder. A process of its own, because plug-ins are installed once per process.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

REQUESTS = 16
LENGTHS = tuple(40 + 10 * number for number in range(REQUESTS))
"""Of the responses, so that fewer and fewer run."""
TOPICS, SENTENCES, WORDS = 16, 12, 8
"""Of the other model: each topic has sentences of its own, of words that no other sentence has."""
CERTAINTY = 14.0
"""Logit of the words that may follow; the sum of all others makes it a probability of 0.997."""
EPOCHS, STEPS, GROUP, ANSWER = 2, 4, 4, 96
"""Of the comparison of epochs: each topic is asked for so many answers of so many tokens in one step of each."""
SHARED_TOKENS = 1_200
"""Room in the shared tree: a fifth of an epoch's answers, where it holds a thousandth of a large run's."""
SEED = 7
LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write_letters(folder: Path) -> None:
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


def write_topics(folder: Path) -> None:
    """Write a model that tells topics: hidden state = embedding of the last word, and its logits are what may follow.

    Attention and MLP add nothing, so the final norm turns the embedding of a word into its direction times √hidden.
    """
    import torch
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

    count, hidden = TOPICS + TOPICS * SENTENCES * WORDS, 512
    core = Tokenizer(models.WordLevel({f"w{number}": number for number in range(count)}, unk_token="w0"))
    PreTrainedTokenizerFast(tokenizer_object=core, pad_token="w0", eos_token="w0").save_pretrained(folder)
    sizes = {"hidden_size": hidden, "intermediate_size": 128, "num_hidden_layers": 1, "tie_word_embeddings": False}
    heads = {"num_attention_heads": 8, "num_key_value_heads": 1, "max_position_embeddings": 2048}
    torch.manual_seed(SEED)
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=count, **sizes, **heads))
    sentences = torch.arange(TOPICS, count).reshape(TOPICS, SENTENCES, WORDS)
    with torch.no_grad():
        directions = torch.nn.functional.normalize(torch.randn(count, hidden))
        model.model.embed_tokens.weight.copy_(directions)
        model.model.layers[0].self_attn.o_proj.weight.zero_()
        model.model.layers[0].mlp.down_proj.weight.zero_()
        followed = torch.zeros(count, hidden)
        followed[sentences[:, :, 1:]] = directions[sentences[:, :, :-1]]
        for topic in range(TOPICS):
            # A sentence of the topic follows its name, and each of its sentences.
            before = directions[topic] + directions[sentences[topic, :, -1]].sum(0)
            followed[sentences[topic, :, 0]] = before
        model.lm_head.weight.copy_(followed * CERTAINTY / hidden**0.5)
    model.save_pretrained(folder)


def engine(folder: Path) -> Any:
    """Return an engine in this process."""
    from vllm import LLM

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
        speculative_config={"method": "suffix", "num_speculative_tokens": 3},
        seed=SEED,
    )


def steps_of(llm: Any) -> int:
    """Return the number of engine steps that generated something so far."""
    (metric,) = (metric for metric in llm.get_metrics() if metric.name == "vllm:iteration_tokens_total")
    return int(metric.count)


def generate(llm: Any, temperature: float) -> dict[str, Any]:
    """Return steps, and how the tokens are seen by one pass over the whole text.

    `first` counts the tokens that are the most probable ones there: without drafts, a greedy sampler takes no others.
    """
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
    differences, first = [], 0
    for output, scored in zip(outputs, again, strict=True):
        expected = scored.prompt_logprobs[-len(output.token_ids) :]
        for token, seen, other in zip(output.token_ids, output.logprobs, expected, strict=True):
            differences.append(abs(seen[token].logprob - other[token].logprob))
            first += other[token].rank == 1
    return {
        "tokens": len(differences),
        "first": first,
        "steps": steps,
        "difference": sum(differences) / len(differences),
    }


def epochs(llm: Any) -> list[dict[str, Any]]:
    """Ask for each topic once an epoch, and send the best answers of each step as the trainer does."""
    import numpy as np
    from vllm import SamplingParams

    from rljob_runtime.verl_plugin.trainer.drafts import records_of
    from rljob_runtime.vllm_plugin import drafts
    from rljob_runtime.vllm_plugin.draft_store import BYTES_PER_TOKEN, SharedTree

    store = getattr(drafter_of(llm), drafts.STORE)
    store._shared = SharedTree(store._new_tree(), SHARED_TOKENS * BYTES_PER_TOKEN)
    seen: list[dict[str, Any]] = []
    for epoch in range(EPOCHS):
        total: dict[str, Any] = {"steps": -steps_of(llm), "tokens": 0}
        for step in range(STEPS):
            prompts = [[topic] * 4 for topic in range(step, TOPICS, STEPS) for _ in range(GROUP)]
            asked = [
                SamplingParams(
                    temperature=1.0, max_tokens=ANSWER, ignore_eos=True, seed=1000 * epoch + 100 * step + row
                )
                for row in range(len(prompts))
            ]
            outputs = llm.generate([{"prompt_token_ids": prompt} for prompt in prompts], asked, use_tqdm=False)
            answers = [np.array(output.outputs[0].token_ids, np.int32) for output in outputs]
            rewards = [float((answer % 2).mean()) for answer in answers]
            records = list(records_of([np.array(p, np.int32) for p in prompts], answers, rewards, 1 << 24))
            (counts,) = llm.collective_rpc(drafts.EXCHANGE, args=(records,))
            total["tokens"] += sum(map(len, answers))
            for name, count in counts.items():
                total[name] = total.get(name, 0) + count
        total["steps"] += steps_of(llm)
        seen.append(total)
    return seen


def drafter_of(llm: Any) -> Any:
    """Return vLLM's proposer in the engine's worker."""
    worker = llm.llm_engine.engine_core.engine_core.model_executor.driver_worker.worker
    return worker.model_runner.drafter


def drafted(llm: Any, settings: str) -> dict[str, Any]:
    """Generate with settings and an empty store of drafts, and return its counts too."""
    from rljob_runtime.contract import Drafts
    from rljob_runtime.vllm_plugin import drafts

    drafter = drafter_of(llm)
    store = drafts._store(drafter, Drafts.from_variable(settings))
    setattr(drafter, drafts.STORE, store)
    found = {"greedy": generate(llm, 0.0), "sampled": generate(llm, 1.0)}
    # The last step of a rollout has nothing after it: its requests end at the next.
    left = len(store.requests)
    (counts,) = llm.collective_rpc(drafts.EXCHANGE, args=([],))
    return {**found, "left": left, "counts": counts}


def main() -> None:
    """Write the model, and generate."""
    from rljob_runtime.contract import DRAFTS_VARIABLE

    folder, kind, *settings = Path(sys.argv[1]), *sys.argv[2:]
    (write_letters if kind == "letters" else write_topics)(folder)
    os.environ |= {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", DRAFTS_VARIABLE: settings[0]}
    llm = engine(folder)
    print(json.dumps(epochs(llm) if kind == "topics" else [drafted(llm, each) for each in settings]))


if __name__ == "__main__":
    main()
