"""A checkpoint is exported while the run continues, also if the export is killed, and transformers loads the result.

That the export generates what the rollout does is asked in runtime/tests/upstream/test_export.py.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e import quickstart
from tests.e2e.python_pod import run_python
from tests.kube import Kube, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.training]

NAME = "exported"
FOLDER = f"{quickstart.MOUNT}/models/{NAME}"
READ = """
import hashlib, json, pathlib, sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
folder = pathlib.Path(sys.argv[1])
tokens = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
asked = tokens.apply_chat_template([{"role": "user", "content": "2+3="}], tokenize=False, add_generation_prompt=True)
ids = tokens(asked, return_tensors="pt", add_special_tokens=False).input_ids
made = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False)
manifest = (folder / "rljob-export.json").read_bytes()
files = {file["name"]: file["sha256"] for file in json.loads(manifest)["files"]}
found = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in files}
print(json.dumps({"digest": hashlib.sha256(manifest).hexdigest(), "whole": files == found,
                  "said": tokens.decode(made[0, ids.shape[1]:], skip_special_tokens=True)}))
"""


def exports(kube: Kube) -> list[dict[str, Any]]:
    """Return the exports in the status; fail if the run has failed."""
    status = (kube.get("rljob", NAME) or {}).get("status") or {}
    assert status.get("state") != "Failed", status
    steps: list[dict[str, Any]] = (status.get("export") or {}).get("steps") or []
    return steps


def test_a_killed_export_begins_again_beside_the_run(alone: Kube) -> None:
    fields: dict[str, Any] = {
        "trainer__steps": 6,
        "checkpoint": {"path": f"{quickstart.MOUNT}/checkpoints/{NAME}", "everySteps": 3},
        "export": {"when": "EveryCheckpoint", "to": {"path": FOLDER}},
    }
    alone.apply(quickstart.variant(NAME, **fields))
    (first,) = wait_for("an export", lambda: exports(alone) or None, 900, every=2)
    selector = f"rljob.dev/export={first['name']}"

    def running() -> str | None:
        pods = alone.find("pods", selector)
        return next((pod["metadata"]["name"] for pod in pods if pod["status"].get("phase") == "Running"), None)

    alone.delete("pod", wait_for("its pod runs", running, 240, every=0.5), wait=False)

    def succeeded() -> dict[str, Any] | None:
        entry = exports(alone)[0]
        assert entry["state"] != "Failed", entry
        return entry if entry["state"] == "Succeeded" else None

    done = wait_for("the export is complete", succeeded, 600, every=2)
    assert done["attempts"] >= 2
    assert done["path"] == f"{FOLDER}/global_step_{done['step']}"

    def all_ended() -> bool:
        status = (alone.get("rljob", NAME) or {})["status"]
        last = exports(alone)[-1]
        assert last["state"] != "Failed", last
        return bool(status["state"] == "Succeeded" and (last["step"], last["state"]) == (6, "Succeeded"))

    wait_for("the last checkpoint is exported", all_ended, 900, every=3)
    status = (alone.get("rljob", NAME) or {})["status"]
    assert (status["restarts"], len(status["attempts"])) == (0, 1)
    model = run_python(alone, READ, exports(alone)[-1]["path"])
    assert (model["digest"], model["whole"]) == (exports(alone)[-1]["digest"], True)
    assert model["said"].strip()
