"""After each step, give responses with high rewards to the engines that draft from them, and ask what drafts achieved.

Runs in the trainer's process. Drafts change only how fast responses are generated, so a failure here is reported and
ends nothing. The counts are those of the first data-parallel engine of each replica: vLLM's client returns no others
(v1/engine/core_client.py, DPAsyncMPClient, 0.23.0).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rljob_runtime.vllm_plugin.draft_store import Source, key_of

if TYPE_CHECKING:
    from verl.trainer.ppo.v1.replay_buffer import KVBatchMeta

    from rljob_runtime.contract import Drafts

RESPONSES_PER_PROMPT = 4
"""Responses that are kept of a group in a step. A group has 8 to 64, and each costs the engine's memory and the time to
insert it."""
PROMPT_TOKENS = 64
"""Tokens that are kept of a prompt's end, by which a response's first tokens are found; no tree is deeper."""
STEP_BYTES = 1 << 30
"""Most that is sent to an engine after a step: 8,000 responses of 32,768 tokens."""
SECONDS = 120.0
"""For all engines to take in the responses."""
FIELDS = ["prompts", "responses", "rm_scores"]

Record = tuple[bytes, bytes]
"""`key_of` a prompt; the end of the prompt and a response, as int32."""


class DraftExchange:
    """What the trainer asks of the engines, and what they answer."""

    def __init__(self, drafts: Drafts | None) -> None:
        self._drafts = drafts
        self._failed = False

    def after_step(self, servers: Sequence[Any], batch: KVBatchMeta) -> dict[str, float]:
        """Send the step's responses, and return the metrics of its drafts. Engines generate nothing meanwhile."""
        if self._drafts is None or not self._drafts.needs_suffix_trees:
            return {}
        try:
            return metrics_of(self._exchange(servers, batch))
        except Exception as error:  # noqa: BLE001 - the training is correct without drafts
            if not self._failed:
                print(f"rljob: warning: drafts have no history: {error!r}", file=sys.stderr, flush=True)  # noqa: T201
            self._failed = True
            return {}

    def _exchange(self, servers: Sequence[Any], batch: KVBatchMeta) -> list[Mapping[str, int]]:
        import ray

        bound = 0 if self._drafts is None else min(self._drafts.history_bytes // 2, STEP_BYTES)
        records = ray.put(list(records_of(*read(batch), bound)) if bound else [])
        answers = ray.get([server.exchange_drafts.remote(records) for server in servers], timeout=SECONDS)
        return [answer for answer in answers if answer]


def read(batch: KVBatchMeta) -> tuple[list[Any], list[Any], list[float]]:
    """Return prompts, responses (arrays of token ids) and rewards of the batch, without the rows that verl padded."""
    import numpy as np
    import transfer_queue as tq

    data = tq.kv_batch_get(keys=batch.keys, partition_id=batch.partition_id, select_fields=FIELDS)
    rows = [row for row, tag in enumerate(batch.tags) if not tag.get("is_padding", False)]
    prompts, responses, scores = (data[name].unbind() for name in FIELDS)
    texts = ([part[row].numpy().astype(np.int32) for row in rows] for part in (prompts, responses))
    return next(texts), next(texts), [float(scores[row].sum()) for row in rows]


def records_of(
    prompts: Sequence[Any], responses: Sequence[Any], rewards: Sequence[float], most_bytes: int
) -> Iterator[Record]:
    """Return the best responses of each prompt up to a size: first the best of all prompts, then the second best."""
    groups: dict[bytes, list[int]] = {}
    for row, prompt in enumerate(prompts):
        groups.setdefault(key_of(prompt.tobytes()), []).append(row)
    for rows in groups.values():
        rows.sort(key=lambda row: -rewards[row])
    left = most_bytes
    for rank in range(RESPONSES_PER_PROMPT):
        for key, rows in groups.items():
            if rank < len(rows):
                text = prompts[rows[rank]][-PROMPT_TOKENS:].tobytes() + responses[rows[rank]].tobytes()
                left -= len(text)
                if left < 0:
                    return
                yield key, text


def metrics_of(answers: Sequence[Mapping[str, int]]) -> dict[str, float]:
    """Return metrics in verl's style. verl fills the first two for draft models only (ray_trainer.py:138, 0.9.1)."""
    total = {name: sum(answer[name] for answer in answers) for name in (answers[0] if answers else ())}
    drafted = sum(total.get(f"drafted_{source}", 0) for source in Source)
    accepted = sum(total.get(f"accepted_{source}", 0) for source in Source)
    steps = total.get("open_steps", 0) + total.get("closed_steps", 0)
    metrics: dict[str, float] = {}
    if drafted:
        metrics["rollout/spec_accept_rate"] = accepted / drafted
        metrics["rollout/spec_accept_length"] = 1.0 + accepted / total["verified"]
    if steps:
        metrics["rollout/draft_steps_ratio"] = total["open_steps"] / steps
        metrics["rollout/draft_history_bytes"] = float(max(answer["history_bytes"] for answer in answers))
        for source in Source:
            metrics[f"rollout/draft_tokens/{source}"] = float(total[f"drafted_{source}"])
            metrics[f"rollout/draft_tokens_accepted/{source}"] = float(total[f"accepted_{source}"])
    return metrics
