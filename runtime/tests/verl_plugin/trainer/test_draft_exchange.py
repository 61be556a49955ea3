"""Which responses the engines get after a step, and the metrics of what they drafted."""

from __future__ import annotations

import sys
import types
from array import array
from collections.abc import Sequence
from typing import Any

import pytest

from rljob_runtime.contract import Drafts
from rljob_runtime.verl_plugin.trainer import drafts
from rljob_runtime.verl_plugin.trainer.drafts import PROMPT_TOKENS, DraftExchange, metrics_of, records_of
from rljob_runtime.vllm_plugin.draft_store import key_of

MANY = 1 << 20
COUNTS = {
    "drafted_own": 30,
    "drafted_shared": 50,
    "drafted_history": 20,
    "accepted_own": 10,
    "accepted_shared": 5,
    "accepted_history": 10,
    "verified": 50,
    "open_steps": 30,
    "closed_steps": 90,
    "history_bytes": 1000,
}


def ids(*tokens: int) -> array[int]:
    return array("i", tokens)


def sent(rewards: Sequence[float], most_bytes: int = MANY) -> list[tuple[bytes, bytes]]:
    """Return the records of two prompts with half of the responses each: one token, its row."""
    half = len(rewards) // 2
    prompts = [ids(1, 2)] * half + [ids(3, 4)] * half
    return list(records_of(prompts, [ids(100 + row) for row in range(len(rewards))], rewards, most_bytes))


def rows(records: list[tuple[bytes, bytes]]) -> list[int]:
    return [array("i", text)[-1] - 100 for _, text in records]


def test_the_best_responses_of_each_prompt_are_sent() -> None:
    records = sent([0.0, 1.0, 0.5, 0.2, 0.9, 0.1, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0])
    assert rows(records) == [1, 11, 4, 6, 2, 7, 3, 8]
    assert records[0] == (key_of(ids(1, 2).tobytes()), ids(1, 2, 101).tobytes())


def test_within_a_limit_each_prompt_has_its_best_first() -> None:
    assert rows(sent([0.0, 1.0, 0.5, 0.2], most_bytes=2 * 3 * 4)) == [1, 2]
    assert sent([0.0, 1.0], most_bytes=11) == []


def test_only_the_end_of_a_prompt_is_sent() -> None:
    prompt = ids(*range(PROMPT_TOKENS + 9))
    ((key, text),) = records_of([prompt], [ids(7)], [1.0], MANY)
    assert key == key_of(prompt.tobytes())
    assert len(text) == 4 * (PROMPT_TOKENS + 1)


def test_the_metrics_are_sums_over_replicas() -> None:
    metrics = metrics_of([COUNTS, COUNTS | {"history_bytes": 3000}])
    assert metrics["rollout/spec_accept_rate"] == 0.25
    assert metrics["rollout/spec_accept_length"] == 1.5
    assert metrics["rollout/draft_steps_ratio"] == 0.25
    assert metrics["rollout/draft_history_bytes"] == 3000
    assert metrics["rollout/draft_tokens/history"] == 40
    assert metrics["rollout/draft_tokens_accepted/shared"] == 10


def test_engines_that_drafted_nothing_have_no_rates() -> None:
    assert metrics_of([]) == {}
    assert metrics_of([dict.fromkeys(COUNTS, 0)]) == {}
    closed = metrics_of([dict.fromkeys(COUNTS, 0) | {"closed_steps": 5}])
    assert closed["rollout/draft_steps_ratio"] == 0
    assert "rollout/spec_accept_rate" not in closed


class Server:
    """A replica, as far as the trainer calls it."""

    def __init__(self, answer: dict[str, int] | Exception) -> None:
        self.answer, self.asked = answer, list[object]()
        self.exchange_drafts = types.SimpleNamespace(remote=self._ask)

    def _ask(self, records: object) -> dict[str, int] | Exception:
        self.asked.append(records)
        return self.answer


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> None:
    def get(answers: list[Any], timeout: float) -> list[Any]:
        assert timeout > 0
        for answer in answers:
            if isinstance(answer, Exception):
                raise answer
        return answers

    monkeypatch.setitem(sys.modules, "ray", types.SimpleNamespace(put=lambda value: value, get=get))


BATCH: Any = types.SimpleNamespace(keys=["a", "b"], tags=[{}, {}], partition_id="train")


@pytest.mark.parametrize("settings", [None, Drafts(32)])
def test_without_suffix_trees_no_engine_is_asked(settings: Drafts | None) -> None:
    server = Server(COUNTS)
    assert DraftExchange(settings).after_step([server], BATCH) == {}
    assert server.asked == []


@pytest.mark.usefixtures("ray")
def test_without_a_history_only_the_counts_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "read", lambda _: pytest.fail("the batch was read"))
    server = Server(COUNTS)
    assert DraftExchange(Drafts(32, needs_suffix_trees=True)).after_step([server, Server({})], BATCH)
    assert server.asked == [[]]


@pytest.mark.usefixtures("ray")
def test_every_replica_gets_the_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "read", lambda _: ([ids(1)], [ids(2)], [1.0]))
    servers = [Server(COUNTS), Server(COUNTS)]
    DraftExchange(Drafts(32, MANY, needs_suffix_trees=True)).after_step(servers, BATCH)
    assert servers[0].asked == servers[1].asked == [[(key_of(ids(1).tobytes()), ids(1, 2).tobytes())]]


@pytest.mark.usefixtures("ray")
def test_a_failure_is_printed_once_and_ends_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    exchange = DraftExchange(Drafts(32, needs_suffix_trees=True))
    for _ in range(2):
        assert exchange.after_step([Server(RuntimeError("gone"))], BATCH) == {}
    assert capsys.readouterr().err.count("drafts have no history: RuntimeError('gone')") == 1
