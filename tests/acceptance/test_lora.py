"""The quickstart trains a LoRA adapter: it learns, and what is evaluated and exported is the model with the adapter."""

from __future__ import annotations

import json
import statistics
from typing import Any

import pytest

from tests.e2e import quickstart, recorded_run
from tests.e2e.python_pod import run_python
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.training]

NAME = "lora"
STEPS, SAVE_EVERY = 40, 20
RANK, ALPHA = 8, 16
READ = """
import json, pathlib, sys, torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
base, made = map(pathlib.Path, sys.argv[1:3])
base, adapter = load_file(base / "model.safetensors"), load_file(made / "lora_adapter/adapter_model.safetensors")
merged, wrong = load_file(made / "model.safetensors"), []
for name, weight in merged.items():
    low, high = (adapter.get(f"base_model.model.{name.removesuffix('weight')}lora_{part}.weight") for part in "AB")
    exact = base[name].bfloat16().float()
    exact = exact if low is None else exact + float(sys.argv[3]) * (high.float() @ low.float())
    wrong += [] if torch.equal(exact.bfloat16(), weight) else [name]
changed = sum(not torch.equal(base[name].bfloat16(), weight) for name, weight in merged.items())
print(json.dumps({"wrong": wrong, "changed": changed, "adapted": len(adapter) // 2}))
"""


def test_what_is_evaluated_and_exported_is_the_base_with_the_adapter(alone: Kube) -> None:
    job = quickstart.variant(
        NAME,
        trainer__lora={"rank": RANK, "alpha": ALPHA},
        trainer__steps=STEPS,
        trainer__learningRate="2e-3",
        checkpoint={"path": f"{quickstart.MOUNT}/checkpoints/{NAME}", "everySteps": SAVE_EVERY, "keep": 2},
        evaluation={"every": 1, "devicesPerNode": 1},
        export={"when": "EveryCheckpoint", "to": {"path": f"{quickstart.MOUNT}/models/{NAME}"}},
    )
    *_, record = recorded_run.run_with_faults(alone, job, (), 3600)
    assert record.status["state"] == "Succeeded", json.dumps(record.status, indent=1)
    rewards = [line["metrics"]["critic/score/mean"] for line in record.lines]
    first, last = statistics.mean(rewards[:5]), statistics.mean(rewards[-5:])
    print(f"reward: first five {first:.3f}, last five {last:.3f}")
    assert last >= first + 0.1

    def done(section: str) -> list[dict[str, Any]] | None:
        entries = ((alone.get("rljob", NAME) or {})["status"].get(section) or {}).get("steps") or []
        assert all(entry["state"] != "Failed" for entry in entries), entries
        whole = [entry["step"] for entry in entries if entry["state"] == "Succeeded"] == [SAVE_EVERY, STEPS]
        return entries if whole else None

    exports = wait_for("both steps are exported", lambda: done("export"), 1200, every=3)
    scores = [
        float(entry["score"]) for entry in wait_for("both are evaluated", lambda: done("evaluation"), 1800, every=3)
    ]
    print(f"scores of the checkpoints: {scores}")
    # Greedy answers are at least as good as the sampled ones of training; those of the base are as in the first steps.
    assert scores[-1] >= last - 0.05
    for entry in exports:
        found = run_python(alone, READ, quickstart.rljob()["spec"]["model"]["path"], entry["path"], str(ALPHA / RANK))
        assert found["wrong"] == []
        assert found["changed"] == found["adapted"] == 14
