"""Create the quickstart's inputs: a tokenizer, a tiny Qwen2 that adds badly, and prompts to improve it.

Nothing is downloaded. The model first learns single-digit sums from a teacher who is wrong in 40 % of its answers, so
that it knows the format but errs often; reinforcement learning with an exact reward then repairs it. The seed is
fixed: every pod that runs this gets the same files. It takes about half a minute on one core.

    python prepare.py /data

writes /data/model, /data/train.parquet and /data/validation.parquet, and does nothing when they are there.
"""

from __future__ import annotations

import argparse
import random
import shutil
import time
from pathlib import Path

SEED = 7
OPERANDS = range(10)
TEACHER_ERROR_RATE = 0.4
WARM_UP_STEPS = 1000
BATCH = 64
LEARNING_RATE = 2e-3
TRAIN_ROWS = 640
VALIDATION_ROWS = 100

Question = tuple[int, int]


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"prepare: {text}", flush=True)


def make_tokenizer():  # noqa: ANN201 - transformers ships no types
    """Build a byte-level tokenizer: 256 bytes and four special tokens, with a chat template."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<eos>", "<user>", "<assistant>"]
    tokens = special + sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={token: index for index, token in enumerate(tokens)}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="<pad>",
        additional_special_tokens=["<user>", "<assistant>"],
    )
    tokenizer.chat_template = (
        "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}"
        "{% if m['role'] == 'assistant' %}<eos>{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    return tokenizer


def make_model(tokenizer):  # noqa: ANN001, ANN201
    """Build a Qwen2 with 0.4 million random weights."""
    from transformers import Qwen2Config, Qwen2ForCausalLM

    return Qwen2ForCausalLM(
        Qwen2Config(
            # verl masks logits beyond the tokenizer's length in vLLM only: the two must be equal.
            vocab_size=len(tokenizer),
            hidden_size=128,
            intermediate_size=256,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            max_position_embeddings=256,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
            tie_word_embeddings=False,
        )
    )


def question_text(question: Question) -> str:
    """Write a question as the user asks it."""
    return f"{question[0]}+{question[1]}="


def teach(rng: random.Random, question: Question) -> str:
    """Answer a question as the unreliable teacher does."""
    right = sum(question)
    if rng.random() >= TEACHER_ERROR_RATE:
        return str(right)
    return str(rng.choice([answer for answer in range(19) if answer != right]))


def warm_up(model, tokenizer, rng: random.Random) -> None:  # noqa: ANN001
    """Train on the teacher's answers; the loss counts the answer only."""
    import torch

    prompts = {
        (a, b): tokenizer.apply_chat_template(
            [{"role": "user", "content": question_text((a, b))}], add_generation_prompt=True, return_dict=False
        )
        for a in OPERANDS
        for b in OPERANDS
    }
    answers = {str(n): [*tokenizer(str(n))["input_ids"], tokenizer.eos_token_id] for n in range(19)}
    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LEARNING_RATE, total_steps=WARM_UP_STEPS)
    model.train()
    for step in range(1, WARM_UP_STEPS + 1):
        rows, labels = [], []
        for _ in range(BATCH):
            question = (rng.choice(OPERANDS), rng.choice(OPERANDS))
            prompt, answer = prompts[question], answers[teach(rng, question)]
            padding = 3 - len(answer)
            rows.append(prompt + answer + [tokenizer.pad_token_id] * padding)
            labels.append([-100] * len(prompt) + answer + [-100] * padding)
        loss = model(input_ids=torch.tensor(rows), labels=torch.tensor(labels)).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            say(f"warm-up step {step}/{WARM_UP_STEPS}, loss {loss.item():.3f}")


def write_prompts(path: Path, questions: list[Question]) -> None:
    """Write the prompts in verl's schema."""
    import pandas as pd

    rows = [
        {
            "data_source": "quickstart/sums",
            "prompt": [{"role": "user", "content": question_text(question)}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": str(sum(question))},
            "extra_info": {"index": index, "question": question_text(question)},
        }
        for index, question in enumerate(questions)
    ]
    pd.DataFrame(rows).to_parquet(path)


def main() -> None:
    """Make everything in a scratch folder, then publish it; the model comes last and marks the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    if (folder / "model" / "config.json").exists():
        say(f"{folder} is complete, nothing to do")
        return
    start = time.monotonic()
    import torch

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    rng = random.Random(SEED)  # noqa: S311 - data, not secrets
    folder.mkdir(parents=True, exist_ok=True)

    every = [(a, b) for a in OPERANDS for b in OPERANDS]
    train = [question for _ in range(-(-TRAIN_ROWS // len(every))) for question in rng.sample(every, len(every))]
    write_prompts(folder / "train.parquet", train[:TRAIN_ROWS])
    write_prompts(folder / "validation.parquet", every[:VALIDATION_ROWS])
    say(f"wrote {TRAIN_ROWS} prompts")

    tokenizer = make_tokenizer()
    model = make_model(tokenizer)
    warm_up(model, tokenizer, rng)

    scratch = folder / f".model-{random.SystemRandom().randrange(10**9)}"
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    shutil.rmtree(folder / "model", ignore_errors=True)
    scratch.rename(folder / "model")
    say(f"done in {time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    main()
