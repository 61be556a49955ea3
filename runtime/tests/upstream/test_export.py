"""An export of a real checkpoint generates, token by token, what the rollout generated with the same weights.

The run that makes it has two ranks, which write the earlier steps while it continues.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rljob_runtime.checkpoints import saved_steps
from rljob_runtime.contract import EXPORT_MANIFEST, ExportPlace, ExportRequest

STEPS = 3
SPREAD = 0.4
"""Weights so large that mostly one token is far ahead of the others."""
SURE = 4.0
"""Distance of the first two logits from which other kernels cannot decide, in units of what rounding does to them.

What it does is measured for each token: the largest difference between the logits in bfloat16 and in float32.
"""
COMPARED_MIN = 20
"""Of the 512 tokens. In a row, all tokens before the first one that is not sure are compared; how many that are depends
on the machine's kernels."""

GENERATE = """
import json, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
prompts, sure, folders = json.loads(sys.stdin.read()), float(sys.argv[1]), sys.argv[2:]


def answer(tokens, model, exact, prompt):
    text = tokens.apply_chat_template([{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True)
    ids = tokens(text, return_tensors="pt", add_special_tokens=False).input_ids
    out = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, do_sample=False,
                         output_logits=True, return_dict_in_generate=True)
    logits = torch.cat(out.logits).float()
    with torch.no_grad():
        noise = (logits - exact(out.sequences).logits[0, ids.shape[1] - 1 : -1]).abs().amax(-1)
    best = logits.topk(2).values
    doubtful = best[:, 0] - best[:, 1] < sure * noise
    count = int(doubtful.nonzero()[0]) if doubtful.any() else len(doubtful)
    made = out.sequences[0, ids.shape[1]:][:count]
    return {"tokens": count, "text": tokens.decode(made, skip_special_tokens=True)}


for folder in folders:
    tokens = AutoTokenizer.from_pretrained(folder)
    kinds = torch.bfloat16, torch.float32
    model, exact = (AutoModelForCausalLM.from_pretrained(folder, dtype=kind) for kind in kinds)
    print(json.dumps([answer(tokens, model, exact, prompt) for prompt in prompts]))
"""


def validated(folder: Path) -> list[dict[str, Any]]:
    """Return what the rollout generated in the validation after the last step."""
    return [json.loads(line) for line in (folder / f"{STEPS}.jsonl").read_text().splitlines()]


@pytest.mark.long
def test_the_export_generates_what_the_rollout_generated(tmp_path: Path, real_training: Any) -> None:
    told = tmp_path / "told"
    overrides = {
        "actor_rollout_ref.actor.optim.lr": 2e-2,  # so that the model generates something else than at the start
        "trainer.test_freq": STEPS,
        "trainer.save_freq": 1,
        "trainer.validation_data_dir": str(told),
        "actor_rollout_ref.rollout.val_kwargs.do_sample": False,
        "actor_rollout_ref.rollout.val_kwargs.temperature": 0,
    }
    real_training(tmp_path, "run", steps=STEPS, spread=SPREAD, devices=2, background=True, overrides=overrides)
    saved = tmp_path / "run" / "checkpoints"
    assert (saved_steps.complete_steps(saved), saved_steps.tracked_step(saved)) == ([*range(1, STEPS + 1)], STEPS)
    assert all(saved_steps.has_every_part(saved / f"global_step_{step}") for step in range(1, STEPS + 1))
    assert not list(saved.glob(".saving-*"))
    made = saved / f"global_step_{STEPS}"
    request = ExportRequest(
        "tests", "run", "run", str(made.parent), 0, ExportPlace.FOLDER, folder=str(tmp_path / "models")
    )
    words = [sys.executable, "-m", "rljob_runtime", "export", request.to_json().decode()]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    place = tmp_path / "models" / f"global_step_{STEPS}"
    assert json.loads((place / EXPORT_MANIFEST).read_text())["step"] == STEPS
    rows = validated(told)
    assert len({row["output"] for row in rows}) > 1
    answers, at_the_start = generated(rows, place, tmp_path / "model")
    assert sum(answer["tokens"] for answer in answers) >= COMPARED_MIN
    assert [answer["text"] for answer in answers if not agrees(answer, rows)] == []
    # The comparison tells these weights from those at the start.
    assert any(not agrees(answer, rows) for answer in at_the_start)


def generated(rows: list[dict[str, Any]], *models: Path) -> list[list[dict[str, Any]]]:
    """Return what transformers generates greedily with each model, up to the first token that is not sure."""
    done = subprocess.run(
        [sys.executable, "-c", GENERATE, str(SURE), *map(str, models)],
        input=json.dumps([row["input"] for row in rows]),
        capture_output=True,
        text=True,
        check=True,
        timeout=240,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()[-len(models) :]]
    return [[answer | {"row": number} for number, answer in enumerate(answers)] for answers in lines]


def agrees(answer: dict[str, Any], rows: list[dict[str, Any]]) -> bool:
    """Report whether the rollout generated the same tokens.

    A byte that waits for the next one of its character is shown in another way at the end of a text.
    """
    return bool(rows[answer["row"]]["output"].startswith(answer["text"].rstrip("\ufffd")))
