"""Create the inputs of the agent example: a tokenizer, a tiny Qwen2 that seldom uses its calculator, and sums.

Nothing is downloaded. The model first learns from a teacher who calls the tool `add` in half of its answers and guesses
in the others, so that it knows the form of a call; reinforcement learning then finds that calling pays. The seed is
fixed: every pod that runs this gets the same files.

    python prepare.py /data
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from pathlib import Path

SEED = 11
OPERANDS = range(10)
CALL_RATE = 0.5
WARM_UP_STEPS = 600
BATCH = 32
LEARNING_RATE = 2e-3
TRAIN_ROWS = 640

Question = tuple[int, int]


def make_tokenizer():  # noqa: ANN201 - transformers ships no types
    """Build a byte-level tokenizer with a chat template that has a role for results of tools."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    roles = ["<user>", "<assistant>", "<tool>"]
    tokens = ["<pad>", "<eos>", *roles, *sorted(pre_tokenizers.ByteLevel.alphabet())]
    core = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<pad>", "additional_special_tokens": roles}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, **special)
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}"
        "{% if m['role'] == 'assistant' %}<eos>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    return tokenizer


def make_model(tokenizer):  # noqa: ANN001, ANN201
    """Build a Qwen2 with 0.4 million random weights."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    sizes = {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "max_position_embeddings": 256}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    ends = {"eos_token_id": tokenizer.eos_token_id, "pad_token_id": tokenizer.pad_token_id, "bos_token_id": None}
    # verl masks logits beyond the tokenizer's length in vLLM only: the two must be equal.
    return Qwen2ForCausalLM(Qwen2Config(vocab_size=len(tokenizer), tie_word_embeddings=False, **sizes, **heads, **ends))


def teach(rng: random.Random, question: Question) -> list[tuple[str, bool]]:
    """Return the parts of the teacher's response, and whether the model writes each."""
    a, b = question
    if rng.random() >= CALL_RATE:
        return [(f"={rng.randrange(19)}<eos>", True)]
    call = json.dumps({"name": "add", "arguments": {"a": a, "b": b}})
    return [
        (f"<tool_call>{call}</tool_call><eos>", True),
        (f"<tool>{a + b}<assistant>", False),
        (f"={a + b}<eos>", True),
    ]


def warm_up(model, tokenizer, rng: random.Random) -> None:  # noqa: ANN001
    """Train on the teacher's responses; the loss counts what the model writes."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LEARNING_RATE, total_steps=WARM_UP_STEPS)
    model.train()
    for step in range(1, WARM_UP_STEPS + 1):
        rows, labels = [], []
        for _ in range(BATCH):
            question = (rng.choice(OPERANDS), rng.choice(OPERANDS))
            tokens = tokenizer(f"<user>{question[0]}+{question[1]}=<assistant>")["input_ids"]
            wanted = [-100] * len(tokens)
            for text, own in teach(rng, question):
                part = tokenizer(text)["input_ids"]
                tokens += part
                wanted += part if own else [-100] * len(part)
            rows.append(tokens)
            labels.append(wanted)
        longest = max(map(len, rows))
        padded = torch.tensor([row + [tokenizer.pad_token_id] * (longest - len(row)) for row in rows])
        loss = model(
            input_ids=padded, labels=torch.tensor([row + [-100] * (longest - len(row)) for row in labels])
        ).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"prepare: warm-up step {step}/{WARM_UP_STEPS}, loss {loss.item():.3f}", flush=True)


def write_prompts(path: Path, questions: list[Question]) -> None:
    """Write the prompts in verl's schema."""
    import pandas as pd

    rows = [
        {
            "data_source": "agent/sums",
            "prompt": [{"role": "user", "content": f"{a}+{b}="}],
            "reward_model": {"style": "rule", "ground_truth": str(a + b)},
            "extra_info": {"index": index},
        }
        for index, (a, b) in enumerate(questions)
    ]
    pd.DataFrame(rows).to_parquet(path)


def main() -> None:
    """Make everything in a scratch folder, then publish it; the model comes last and marks the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    if (folder / "model" / "config.json").exists():
        print(f"prepare: {folder} is complete, nothing to do", flush=True)
        return
    import torch

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rng = random.Random(SEED)  # noqa: S311 - data, not secrets
    folder.mkdir(parents=True, exist_ok=True)
    every = [(a, b) for a in OPERANDS for b in OPERANDS]
    write_prompts(folder / "train.parquet", [rng.choice(every) for _ in range(TRAIN_ROWS)])
    write_prompts(folder / "validation.parquet", every)
    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    warm_up(model, tokenizer, rng)
    scratch = folder / f".model-{random.SystemRandom().randrange(10**9)}"
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    shutil.rmtree(folder / "model", ignore_errors=True)
    scratch.rename(folder / "model")


if __name__ == "__main__":
    main()
