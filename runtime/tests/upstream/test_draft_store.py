"""Drafts from real suffix trees: where they come from, when they are made, and what remains of a request."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from arctic_inference.suffix_decoding._C import SuffixTree

from rljob_runtime.contract import Drafts
from rljob_runtime.vllm_plugin import draft_store
from rljob_runtime.vllm_plugin.draft_store import (
    BYTES_PER_TOKEN,
    CLOSED_CHUNK,
    DraftStore,
    History,
    Limits,
    Record,
    SharedTree,
    Source,
    Text,
    key_of,
)

LIMITS = Limits(tokens=3, depth=8, factor=1.0, probability=0.1, model_length=512)
MANY = 1_000
MEBIBYTE = 1 << 20


@dataclass
class Batch:
    """Running requests, as vLLM's InputBatch has them."""

    texts: dict[str, tuple[list[int], list[int]]] = field(default_factory=dict)
    """Name -> prompt and response."""

    @property
    def req_ids(self) -> list[str]:
        return list(self.texts)

    @property
    def req_id_to_index(self) -> dict[str, int]:
        return {name: index for index, name in enumerate(self.texts)}

    @property
    def num_prompt_tokens(self) -> Any:
        return np.array([len(prompt) for prompt, _ in self.texts.values()])

    @property
    def num_tokens_no_spec(self) -> Any:
        return np.array([len(prompt) + len(response) for prompt, response in self.texts.values()])

    @property
    def token_ids_cpu(self) -> Any:
        table: Any = np.zeros((len(self.texts), LIMITS.model_length), np.int32)
        for row, (prompt, response) in zip(table, self.texts.values(), strict=True):
            row[: len(prompt) + len(response)] = prompt + response
        return table

    def step(self, store: DraftStore, **sampled: list[int]) -> dict[str, list[int]]:
        """Append what an engine's step sampled, and return the drafts for the next one."""
        for name, tokens in sampled.items():
            self.texts[name][1].extend(tokens)
        drafts = store.propose(self, [sampled.get(name, []) for name in self.texts])
        return dict(zip(self.texts, drafts, strict=True))


def store(sequences: int = MANY, history: int = 0, limits: Limits = LIMITS) -> DraftStore:
    return DraftStore(Drafts(sequences, history), limits, SuffixTree)


def record(prompt: list[int], response: list[int]) -> Record:
    text = np.array([*prompt, *response], np.int32)
    return Record(key_of(np.array(prompt, np.int32).tobytes()), text.tobytes())


def test_a_request_continues_its_own_prompt_and_response() -> None:
    batch, made = Batch({"a": ([1, 2, 3, 4, 5, 6], [])}), store()
    assert batch.step(made, a=[1]) == {"a": [2]}
    assert batch.step(made, a=[2, 3]) == {"a": [4, 5, 6]}
    counts = made.exchange([])
    assert (counts["drafted_own"], counts["accepted_own"]) == (1, 1)


def test_a_request_continues_a_response_of_another() -> None:
    batch, made = Batch({"a": ([1], [])}), store()
    batch.step(made, a=[21, 22, 23, 24])
    batch.texts = {"b": ([2], [])}
    assert batch.step(made, b=[21, 22]) == {"b": [23, 24]}
    batch.step(made, b=[23, 9])
    counts = made.exchange([])
    assert (counts["drafted_shared"], counts["accepted_shared"]) == (2, 1)


def test_more_sequences_than_the_limit_get_no_drafts_and_fewer_do() -> None:
    batch, made = Batch({name: ([1, 2, 3, 1, 2], []) for name in "abc"}), store(sequences=2)
    assert batch.step(made, a=[3], b=[3], c=[3]) == {"a": [], "b": [], "c": []}
    del batch.texts["c"]
    assert all(batch.step(made, a=[1], b=[1]).values())
    counts = made.exchange([])
    assert (counts["closed_steps"], counts["open_steps"]) == (1, 1)


def test_a_gate_that_opens_late_knows_all_that_was_generated_before() -> None:
    batch, made = Batch({name: ([1], []) for name in "abc"}), store(sequences=1)
    batch.step(made, a=[31, 32, 33, 34], b=[5], c=[5])
    batch.step(made, a=[6], b=[6], c=[6])
    batch.texts = {"a": batch.texts["a"]}
    assert batch.step(made, a=[31, 32]) == {"a": [33, 34]}


def test_nothing_of_an_ended_request_remains_whether_drafts_are_made_or_not() -> None:
    for sequences in (1, MANY):
        batch, made = Batch({name: ([1, 2], []) for name in "abcd"}), store(sequences, history=MEBIBYTE)
        made.exchange([record([1, 2], [7, 8, 9])])
        for _ in range(3):
            batch.step(made, a=[3], b=[3], c=[3], d=[3])
        assert set(made.requests) == set("abcd")
        batch.texts = {"e": ([1, 2], [])}
        batch.step(made, e=[3])
        assert set(made.requests) == {"e"}
        batch.texts = {}
        batch.step(made)
        assert not made.requests
        assert made._history._in_trees == 0


def test_a_closed_gate_drops_own_trees_when_far_more_requests_run() -> None:
    batch, made = Batch({"a": ([1], [])}), store(sequences=1)
    batch.step(made, a=[2])
    assert made.requests["a"].own is not None
    batch.texts |= {name: ([1], []) for name in "bc"}
    batch.step(made, a=[2], b=[2], c=[2])
    assert made.requests["a"].own is None


def test_a_closed_gate_remembers_responses_in_pieces() -> None:
    batch, made = Batch({name: ([1], []) for name in "ab"}), store(sequences=1)
    for number in range(CLOSED_CHUNK):
        assert made._shared.tokens == 0
        batch.step(made, a=[100 + number], b=[200])
    assert made._shared.tokens == 2 * CLOSED_CHUNK


def test_a_step_inserts_a_limited_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(draft_store, "OPEN_TOKENS", 10)
    batch, made = Batch({"a": (list(range(1, 36)), [])}), store()
    known = []
    for _ in range(5):
        batch.step(made, a=[9])
        own = made.requests["a"].own
        assert own is not None
        known.append(own.known)
    assert known == [11, 22, 33, 39, 40]


def test_an_unfinished_prompt_gets_no_draft() -> None:
    batch, made = Batch({"a": ([1, 2, 1], []), "b": ([1, 2, 1], [])}), store()
    assert batch.step(made, b=[2]) == {"a": [], "b": [1, 2]}
    assert "a" not in made.requests


def test_no_draft_exceeds_the_model_length() -> None:
    limits = Limits(tokens=3, depth=8, factor=1.0, probability=0.1, model_length=8)
    batch, made = Batch({"a": ([1, 2, 3, 4, 1], [])}), store(limits=limits)
    assert batch.step(made, a=[2]) == {"a": [3]}
    assert batch.step(made, a=[3]) == {"a": []}


def test_a_prompt_continues_the_rewarded_responses_of_the_past() -> None:
    batch, made = Batch({"a": ([1, 2, 3], []), "b": ([4, 5, 6], [])}), store(history=MEBIBYTE)
    made.exchange([record([1, 2, 3], [41, 42, 43, 44])])
    assert batch.step(made, a=[41], b=[41]) == {"a": [42, 43, 44], "b": []}
    request = made.requests["a"]
    assert request.waiting is not None
    assert request.waiting.source is Source.HISTORY
    batch.step(made, a=[42, 43, 9], b=[7])
    counts = made.exchange([])
    assert (counts["drafted_history"], counts["accepted_history"]) == (3, 2)
    assert counts["history_bytes"] > 0


def test_requests_with_one_prompt_share_its_tree() -> None:
    batch, made = Batch({"a": ([1, 2], []), "b": ([1, 2], [])}), store(history=MEBIBYTE)
    made.exchange([record([1, 2], [7, 8, 9])])
    batch.step(made, a=[7], b=[7])
    assert made.requests["a"].past is made.requests["b"].past is not None


def test_a_new_step_replaces_the_responses_of_its_prompts() -> None:
    made = store(history=MEBIBYTE)
    made.exchange([record([1, 1], [7, 8, 9]), record([2, 2], [7, 5, 6])])
    made.exchange([record([1, 1], [7, 3, 4])])
    batch = Batch({"a": ([1, 1], []), "b": ([2, 2], [])})
    assert batch.step(made, a=[7], b=[7]) == {"a": [3, 4], "b": [5, 6]}


def test_the_history_forgets_the_prompt_used_longest_ago() -> None:
    texts = {number: record([number], [number] * 99) for number in range(1, 5)}
    history = History(2 * 3 * len(texts[1].text), lambda: SuffixTree(8))
    for number in (1, 2, 3):
        history.replace([texts[number]])
    history.keep_trees(set())
    # No room for a tree, but the request counts as a use.
    assert history.of(texts[1].prompt) is None
    history.replace([texts[4]])
    assert set(history._texts) == {texts[number].prompt for number in (1, 3, 4)}
    assert history.used_bytes <= 2 * 3 * len(texts[1].text)


def test_the_trees_of_the_history_have_a_bound_and_are_released() -> None:
    first, second = record([1], [5] * 50), record([2], [6] * 50)
    history = History(2 * 60 * BYTES_PER_TOKEN, lambda: SuffixTree(8))
    history.replace([first, second])
    assert history.of(first.prompt) is not None
    assert history.of(second.prompt) is None
    history.keep_trees({second.prompt})
    assert history.of(second.prompt) is not None


def test_one_response_larger_than_the_history_is_not_kept() -> None:
    history = History(64, lambda: SuffixTree(8))
    history.replace([record([1], [5] * 50)])
    assert history.used_bytes == 0


def test_a_full_shared_tree_takes_no_more_until_there_is_room() -> None:
    shared = SharedTree(SuffixTree(8), most_bytes=100 * BYTES_PER_TOKEN)
    first = shared.begin()
    tokens: Any = np.arange(80, dtype=np.int32)
    assert first is not None
    assert shared.grow(first, tokens, MANY) == 80
    second = shared.begin()
    assert second is not None
    assert shared.grow(second, tokens, MANY) == 20
    assert shared.begin() is None
    shared.make_room(running={second.identifier})
    assert shared.tokens == 20
    assert shared.tree.check_integrity() == ""  # type: ignore[attr-defined]
    assert shared.grow(second, tokens, MANY) == 60


def test_running_responses_stay_in_the_shared_tree() -> None:
    shared = SharedTree(SuffixTree(8), most_bytes=10 * BYTES_PER_TOKEN)
    running = shared.begin()
    assert isinstance(running, Text)
    shared.grow(running, np.arange(10, dtype=np.int32), MANY)
    shared.make_room(running={running.identifier})
    assert shared.tokens == 10


def test_ended_responses_without_tokens_leave_the_shared_tree() -> None:
    shared = SharedTree(SuffixTree(8))
    ended = [shared.begin() for _ in range(3)]
    assert all(text is not None for text in ended)
    shared.make_room(running=set())
    assert shared.texts == 0


def test_memory_of_a_token_is_bounded_by_the_estimate() -> None:
    """The bounds of all trees are computed with it."""
    random = np.random.default_rng(1)
    for words in (16, 150_000):
        tree, count = SuffixTree(24), 0
        for number in range(16):
            tokens = random.integers(0, words, 4_096).astype(np.int32)
            tree.extend_ndarray(number, tokens)
            count += len(tokens)
        assert tree.estimate_memory() / count <= BYTES_PER_TOKEN
