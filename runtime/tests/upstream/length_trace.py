"""Responses whose lengths are given: an agent loop for runs of real_training.py, and the prompts of a trace.

The lengths of a prompt are lognormal around a value of its own, so that an earlier epoch tells about a later one. They
depend on the prompt and on how often it was sampled, and on nothing else: every order of prompts has the same work.
"""

from __future__ import annotations

import json
import math
import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
from verl.experimental.agent_loop import AgentLoopOutput, SingleTurnAgentLoop

LONGEST, SHORTEST = 190, 3
LOG_MEAN, LOG_DEVIATION, OF_THE_PROMPT = 3.2, 0.95, 0.8
"""Logarithms of tokens; the last is the share of the variance that is the prompt's own."""
PROMPTS, BATCH, SAMPLES = 64, 8, 4
STEPS_OF_AN_EPOCH = PROMPTS // BATCH
RECORD = "LENGTH_TRACE"
"""Variable with the file that lists row and tokens of every response, in the order of their requests."""
_sampled: Counter[int] = Counter()


def tokens_of(row: int, sample: int) -> int:
    """Return the length of a prompt's n-th response of the run."""
    own, noise = random.Random(row), random.Random(1000 * (row + 1) + sample)  # noqa: S311 - a reproducible trace
    deviation = math.sqrt(OF_THE_PROMPT) * own.gauss(0, 1) + math.sqrt(1 - OF_THE_PROMPT) * noise.gauss(0, 1)
    return int(min(LONGEST, max(SHORTEST, math.exp(LOG_MEAN + LOG_DEVIATION * deviation))))


def record(row: int, tokens: int) -> None:
    """Append a response to the record."""
    with Path(os.environ[RECORD]).open("a") as file:
        file.write(f"{json.dumps([row, tokens])}\n")


class TracedLoop(SingleTurnAgentLoop):  # type: ignore[misc] # verl ships no types
    """verl's loop, which generates as many tokens as the trace says."""

    async def run(self, sampling_params: dict[str, Any], **columns: Any) -> AgentLoopOutput:
        row = int(columns["extra_info"]["index"])
        tokens = tokens_of(row, _sampled[row])
        _sampled[row] += 1
        record(row, tokens)
        return await super().run({**sampling_params, "max_tokens": tokens, "ignore_eos": True}, **columns)


def write_prompts(path: Path) -> None:
    """Write the prompts of the trace."""
    rows = [
        {
            "prompt": [{"role": "user", "content": f"{row:02d}"}],
            "data_source": "letters",
            "reward_model": {"style": "rule", "ground_truth": chr(ord("a") + row % 26)},
            "extra_info": {"index": row},
        }
        for row in range(PROMPTS)
    ]
    pd.DataFrame(rows).to_parquet(path)


def overrides(folder: Path) -> dict[str, Any]:
    """Return what makes a run of real_training.py follow the trace."""
    write_prompts(folder / "trace.parquet")
    loop = [{"name": "traced", "_target_": "length_trace.TracedLoop"}]
    (folder / "loop.yaml").write_text(json.dumps(loop))
    rollout = "actor_rollout_ref.rollout"
    return {
        "data.train_files": [str(folder / "trace.parquet")],
        "data.train_batch_size": BATCH,
        "data.max_response_length": LONGEST + 2,
        "data.shuffle": True,
        "data.seed": 1,
        "actor_rollout_ref.actor.ppo_mini_batch_size": BATCH,
        f"{rollout}.n": SAMPLES,
        f"{rollout}.max_model_len": 256,
        f"{rollout}.max_num_seqs": BATCH * SAMPLES,
        f"{rollout}.agent.num_workers": 1,
        f"{rollout}.agent.agent_loop_config_path": str(folder / "loop.yaml"),
        f"{rollout}.agent.default_agent_loop": "traced",
    }
