"""Create the model of the judge example: it reads a sum with an answer and says whether the answer is right.

It begins with the quickstart's model, which knows digits, and learns from right and wrong answers. Nothing is
downloaded, and the seed is fixed. It takes about a minute on one core.

    python prepare.py /data

reads /data/model, which policy.py has written, writes /data/judge, and does nothing when it is there.
"""

from __future__ import annotations

import argparse
import random
import shutil
from pathlib import Path

SEED = 13
STEPS = 1500
BATCH = 64
LEARNING_RATE = 2e-3
LENGTH = 10
"""Tokens of the longest question, verdict and end."""


def ask(answer: str, question: str) -> list[dict[str, str]]:
    """Return the messages to the judge; reward.py asks in the same form."""
    return [{"role": "user", "content": f"{question}{answer}"}]


def learn(model, tokenizer, rng: random.Random) -> None:  # noqa: ANN001 - transformers ships no types
    """Train on sums of which half are right; the loss counts the verdict only."""
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=LEARNING_RATE, total_steps=STEPS)
    verdicts = [[*tokenizer(text)["input_ids"], tokenizer.eos_token_id] for text in "01"]
    model.train()
    for step in range(1, STEPS + 1):
        rows, labels = [], []
        for _ in range(BATCH):
            a, b, is_right = rng.randrange(10), rng.randrange(10), rng.random() < 0.5
            answer = a + b if is_right else rng.choice([other for other in range(19) if other != a + b])
            messages = ask(str(answer), f"{a}+{b}=")
            prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            padding = LENGTH - len(prompt) - 2
            rows.append(prompt + verdicts[is_right] + [tokenizer.pad_token_id] * padding)
            labels.append([-100] * len(prompt) + verdicts[is_right] + [-100] * padding)
        loss = model(input_ids=torch.tensor(rows), labels=torch.tensor(labels)).loss
        loss.backward()
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0:
            print(f"prepare: step {step}/{STEPS}, loss {loss.item():.3f}", flush=True)


def main() -> None:
    """Make the model in a scratch folder, then publish it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder: Path = parser.parse_args().folder
    if (folder / "judge" / "config.json").exists():
        print(f"prepare: {folder / 'judge'} is complete, nothing to do", flush=True)
        return
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    torch.manual_seed(SEED)
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    model = AutoModelForCausalLM.from_pretrained(folder / "model", dtype=torch.float32)
    learn(model, tokenizer, random.Random(SEED))  # noqa: S311 - data, not secrets
    scratch = folder / f".judge-{random.SystemRandom().randrange(10**9)}"
    model.save_pretrained(scratch)
    tokenizer.save_pretrained(scratch)
    shutil.rmtree(folder / "judge", ignore_errors=True)
    scratch.rename(folder / "judge")


if __name__ == "__main__":
    main()
