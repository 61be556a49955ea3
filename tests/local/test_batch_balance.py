"""The quickstart with four updates a step, twice on the same rollouts: ordered by verl, and balanced by update.

verl's `skip.rollout_tq` records the responses of the first run and replays them in the second.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

pytestmark = pytest.mark.e2e
QUICKSTART = Path(os.environ.get("RLJOB_EXAMPLES", "examples")) / "quickstart.yaml"
STEPS, RANKS, UPDATES = 3, 2, 4
RUN_SECONDS = 280


def job(recorded: Path, switch: str) -> str:
    """Return the quickstart with several updates a step, whose rollouts are recorded, or replayed if they are."""
    documents = list(yaml.safe_load_all(QUICKSTART.read_text()))
    for document in documents:
        if document["kind"] == "RLJob":
            spec = document["spec"]
            spec["trainer"] |= {"steps": STEPS, "miniBatchSize": spec["trainer"]["globalBatchSize"] // UPDATES}
            spec["optimizations"] = {"batchBalance": switch}
            replay = {"enable": True, "dump_dir": str(recorded), "steps": list(range(1, STEPS + 1))}
            spec["verl"] = {"overrides": json.dumps({f"skip.rollout_tq.{key}": value for key, value in replay.items()})}
        elif document["kind"] == "ConfigMap":
            script = document["data"]["prepare.py"]
            document["data"]["prepare.py"] = script.replace("WARM_UP_STEPS = 1000", "WARM_UP_STEPS = 100")
    return "\n---\n".join(json.dumps(document) for document in documents)


def steps(folder: Path, recorded: Path, switch: str) -> list[dict[str, Any]]:
    """Run it and return the metrics of its steps."""
    folder.mkdir()
    (folder / "job.yaml").write_text(job(recorded, switch))
    words = [sys.executable, "-m", "rljob.cli.main", "run", "--local", "-f", "job.yaml", "--workdir", str(folder / "w")]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]
    lines = (folder / "w/spool/attempt-1/steps.jsonl").read_text().splitlines()
    return [json.loads(line)["metrics"] for line in lines]


def test_the_same_responses_are_trained_and_every_update_is_balanced(tmp_path: Path) -> None:
    recorded = tmp_path / "rollouts"
    verls = steps(tmp_path / "verl", recorded, "Disabled")
    ours = steps(tmp_path / "ours", recorded, "Auto")
    assert len(verls) == len(ours) == STEPS
    for theirs, mine in zip(verls, ours, strict=True):
        for key in ("critic/score/mean", "response_length/mean", "prompt_length/mean", "perf/total_num_tokens"):
            assert mine[key] == pytest.approx(theirs[key]), key
        assert mine["global_seqlen/mean"] == theirs["global_seqlen/mean"]
        assert mine["rljob/updates_waiting_ratio"] <= min(0.001, theirs["rljob/updates_waiting_ratio"])
        tokens = sum(mine[f"rljob/update/{n}/rank_tokens_{end}"] for n in range(UPDATES) for end in ("min", "max"))
        assert tokens == mine["perf/total_num_tokens"] == RANKS * mine["global_seqlen/mean"]
    for name, run in (("verl", verls), ("by update", ours)):
        print(name, [{key: step[key] for key in sorted(step) if key.startswith("rljob/update")} for step in run])
        print(name, [step["timing_s/update_actor"] for step in run], [step["critic/score/mean"] for step in run])
