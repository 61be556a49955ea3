"""What a history of responses predicts in a second epoch, by replay of texts: no engine, so that it takes seconds.

A drafted token is accepted if it is the text's next one, which has the probability that a sampler gives it.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
from arctic_inference.suffix_decoding._C import SuffixTree

from rljob_runtime.contract import Drafts
from rljob_runtime.verl_plugin.trainer.drafts import records_of
from rljob_runtime.vllm_plugin.draft_store import BYTES_PER_TOKEN, DraftStore, Limits, Record, SharedTree

TOPICS, SENTENCES, WORDS = 16, 12, 8
"""Each prompt is a topic, told in sentences of its own, which no other topic has."""
GROUP, TOKENS, STEPS = 4, 96, 4
SHARED_TOKENS = 1_200
"""A fifth of an epoch. A large run's shared tree holds less than a thousandth."""
LIMITS = Limits(tokens=3, depth=24, factor=1.0, probability=0.1, model_length=512)


def text(topic: int, random: np.random.Generator) -> list[int]:
    """Return sentences of a topic in any order."""
    starts = TOPICS + (topic * SENTENCES + random.integers(0, SENTENCES, TOKENS // WORDS)) * WORDS
    return [int(start) + word for start in starts for word in range(WORDS)]


def passes(store: DraftStore, prompts: list[list[int]], texts: list[list[int]], step: str) -> int:
    """Return the number of forward passes, each for one sequence, in which texts are generated with drafts."""
    table = np.array([[*prompt, *words] for prompt, words in zip(prompts, texts, strict=True)], np.int32)
    known, drafts, count = [0] * len(texts), [list[int]() for _ in texts], 0
    while running := [row for row, tokens in enumerate(known) if tokens < TOKENS]:
        sampled = []
        for row in running:
            ahead = texts[row][known[row] :]
            right = next(
                (n for n, pair in enumerate(zip(drafts[row], ahead, strict=False)) if pair[0] != pair[1]), None
            )
            taken = ahead[: (len(drafts[row]) if right is None else right) + 1]
            known[row] += len(taken)
            sampled.append(taken)
        count += len(running)
        batch: Any = SimpleNamespace(
            req_ids=[f"{step}-{row}" for row in running],
            req_id_to_index={f"{step}-{row}": index for index, row in enumerate(running)},
            num_prompt_tokens=np.full(len(running), len(prompts[0])),
            num_tokens_no_spec=np.array([len(prompts[0]) + known[row] for row in running]),
            token_ids_cpu=table[running],
        )
        for row, draft in zip(running, store.propose(batch, sampled), strict=True):
            drafts[row] = draft
    return count


def tokens_a_pass(history_bytes: int) -> list[float]:
    """Return the tokens of a forward pass in each of two epochs."""
    random, found = np.random.default_rng(0), []
    store = DraftStore(Drafts(1_000, history_bytes), LIMITS, SuffixTree)
    store._shared = SharedTree(SuffixTree(LIMITS.depth), SHARED_TOKENS * BYTES_PER_TOKEN)
    for epoch in range(2):
        count = 0
        for step in range(STEPS):
            topics = [topic for topic in range(step, TOPICS, STEPS) for _ in range(GROUP)]
            prompts, texts = [[topic] * 4 for topic in topics], [text(topic, random) for topic in topics]
            count += passes(store, prompts, texts, f"{epoch}.{step}")
            asked, answers = ([np.array(row, np.int32) for row in rows] for rows in (prompts, texts))
            rewards = [float((answer % 2).mean()) for answer in answers]
            store.exchange(Record(*record) for record in records_of(asked, answers, rewards, history_bytes // 2))
        found.append(TOPICS * GROUP * TOKENS / count)
    return found


def test_a_history_makes_the_second_epoch_faster_where_the_shared_tree_has_forgotten_the_first() -> None:
    plain, kept = tokens_a_pass(0), tokens_a_pass(1 << 26)
    print(f"tokens a pass in each epoch: {plain[0]:.2f}, {plain[1]:.2f}; with history {kept[0]:.2f}, {kept[1]:.2f}")
    assert kept[0] == plain[0]
    assert kept[1] > 1.2 * kept[0]
    assert kept[1] > 1.2 * plain[1]
