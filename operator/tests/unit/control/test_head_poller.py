"""Questions to heads: asked outside the rounds, bounded, in turn, and answered once."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace

import pytest
from doubles.clock import FrozenClock
from hypothesis import given
from hypothesis import strategies as st

from rljob.control.head_poller import (
    FRESH_SECONDS,
    PAUSE_FIRST_SECONDS,
    PAUSE_JITTER,
    PAUSE_LAST_SECONDS,
    SILENT,
    Answer,
    HeadPoller,
    Question,
    pause_seconds,
)
from rljob.control.store import Key
from rljob.core.requirements import Head
from rljob_runtime.contract import Phase, Progress

KEY = Key("team", "sums")
QUESTION = Question(Head("10.0.0.1", "p1", "j1", "c1"), "c1-1", True, "c1-1", 1)
ANSWER = Answer(Progress(pod_uid="p1", phase=Phase.TRAINING))


class Heads:
    """Heads that answer when the test says so, and the poller that asks them."""

    def __init__(self, in_total: int = 8, per_namespace: int = 4) -> None:
        self.clock = FrozenClock()
        self.asked: list[Question] = []
        self.answers: dict[Question, asyncio.Future[Answer]] = {}
        self.ready: list[Key] = []
        self.most: Counter[str] = Counter()
        """The largest number of requests that were under way at once, by namespace and for `all`."""
        self._now: Counter[str] = Counter()
        self.poller = HeadPoller(
            self.ask, self.ready.append, self.clock.monotonic, in_total=in_total, per_namespace=per_namespace
        )

    async def ask(self, question: Question) -> Answer:
        self.asked.append(question)
        namespace = question.head.cluster_name
        for name in (namespace, "all"):
            self._now[name] += 1
            self.most[name] = max(self.most[name], self._now[name])
        try:
            return await self.answers.setdefault(question, asyncio.get_running_loop().create_future())
        finally:
            self._now.subtract((namespace, "all"))

    async def answer(self, question: Question = QUESTION, answer: Answer = ANSWER) -> None:
        await until(lambda: question in self.answers)
        self.answers.pop(question).set_result(answer)
        await rest()


async def rest() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def until(condition: object) -> None:
    assert callable(condition)
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("nothing happened")


def of(namespace: str, number: int) -> tuple[Key, Question]:
    return Key(namespace, f"job-{number}"), replace(QUESTION, head=Head("10.0.0.1", f"p{number}", "j", namespace))


async def test_the_answer_brings_the_job_back_and_is_given_out_once() -> None:
    heads = Heads()
    assert heads.poller.take(KEY, QUESTION) is None
    assert heads.poller.take(KEY, QUESTION) is None
    await heads.answer()
    assert heads.ready == [KEY]
    assert heads.poller.take(KEY, QUESTION) == ANSWER
    assert len(heads.asked) == 1
    assert heads.poller.take(KEY, QUESTION) is None
    await heads.answer()
    assert len(heads.asked) == 2
    await heads.poller.close()


@pytest.mark.parametrize(
    "changed",
    [
        replace(QUESTION, submission_id="c1-2"),
        replace(QUESTION, intended_attempt=2),
        replace(QUESTION, head=replace(QUESTION.head, pod_uid="p2")),
    ],
)
async def test_an_answer_to_another_question_is_not_used(changed: Question) -> None:
    heads = Heads()
    assert heads.poller.take(KEY, QUESTION) is None
    await rest()
    assert heads.poller.take(KEY, changed) is None
    await heads.answer()
    assert heads.ready == []
    assert heads.poller.take(KEY, changed) is None
    await heads.answer(changed)
    assert heads.ready == [KEY]
    assert heads.poller.take(KEY, changed) == ANSWER
    await heads.poller.close()


async def test_an_answer_that_was_requested_before_the_job_needed_none_is_not_used() -> None:
    heads = Heads()
    assert heads.poller.take(KEY, QUESTION) is None
    await rest()
    heads.poller.drop(KEY)  # the job was suspended, say, and a stop was written
    first = heads.answers.pop(QUESTION)
    assert heads.poller.take(KEY, QUESTION) is None
    await rest()
    first.set_result(ANSWER)
    await rest()
    assert heads.ready == []
    assert heads.poller.take(KEY, QUESTION) is None
    await heads.answer()
    assert heads.ready == [KEY]
    await heads.poller.close()


async def test_an_answer_that_waited_too_long_is_asked_for_again() -> None:
    heads = Heads()
    heads.poller.take(KEY, QUESTION)
    await heads.answer()
    heads.clock.advance(FRESH_SECONDS + 1)
    assert heads.poller.take(KEY, QUESTION) is None
    await heads.answer()
    heads.clock.advance(FRESH_SECONDS)
    assert heads.poller.take(KEY, QUESTION) == ANSWER


async def test_a_silent_head_is_left_alone_for_longer_and_longer_until_it_answers() -> None:
    heads = Heads()
    for silences in (1, 2, 3):
        assert heads.poller.take(KEY, QUESTION) is None
        await heads.answer(answer=SILENT)
        assert heads.poller.take(KEY, QUESTION) == SILENT
        assert heads.poller.take(KEY, QUESTION) == SILENT
        assert len(heads.asked) == silences
        heads.clock.advance(pause_seconds(str(KEY), silences))
    assert heads.poller.take(KEY, QUESTION) is None
    await heads.answer()
    assert heads.poller.take(KEY, QUESTION) == ANSWER
    assert heads.poller.take(KEY, QUESTION) is None
    await heads.poller.close()


async def test_a_question_changed_by_the_tenant_does_not_end_the_pause_but_another_pod_does() -> None:
    heads = Heads()
    heads.poller.take(KEY, QUESTION)
    await heads.answer(answer=SILENT)
    assert heads.poller.take(KEY, QUESTION) == SILENT
    heads.poller.drop(KEY)
    assert heads.poller.take(KEY, replace(QUESTION, submission_id="c1-2")) == SILENT
    assert heads.poller.take(KEY, replace(QUESTION, head=replace(QUESTION.head, pod_uid="p2"))) is None
    await heads.poller.close()


async def test_requests_are_bounded_in_total_and_by_namespace_and_namespaces_take_turns() -> None:
    heads = Heads(in_total=8, per_namespace=4)
    silent = [of("a", number) for number in range(50)] + [of("b", number) for number in range(50)]
    for key, question in silent:
        assert heads.poller.take(key, question) is None
    late_key, late = of("c", 0)
    assert heads.poller.take(late_key, late) is None
    await rest()
    assert len(heads.asked) == len(heads.poller) == 8
    assert heads.most == {"a": 4, "b": 4, "all": 8}
    # The first place that is free belongs to the namespace that has none.
    await heads.answer(heads.asked[0], SILENT)
    assert heads.asked[-1] == late
    for _ in range(100):
        await until(lambda: bool(heads.answers))
        await heads.answer(next(iter(heads.answers)), SILENT)
    assert len(heads.asked) == 101
    assert sorted(heads.ready) == sorted([late_key, *(key for key, _ in silent)])
    assert heads.most["a"] <= 4
    assert heads.most["b"] <= 4
    assert heads.most["all"] == 8
    assert len(heads.poller) == 0


async def test_one_namespace_never_takes_the_places_of_another() -> None:
    heads = Heads(in_total=8, per_namespace=4)
    for number in range(200):
        heads.poller.take(*of("a", number))
    for number in range(4):
        heads.poller.take(*of("b", number))
    await rest()
    assert Counter(question.head.cluster_name for question in heads.asked) == {"a": 4, "b": 4}
    await heads.poller.close()
    assert len(heads.poller) == 0


async def test_a_question_that_is_dropped_while_it_waits_is_never_asked() -> None:
    heads = Heads(in_total=1)
    for number in (1, 2, 3):
        heads.poller.take(*of("a", number))
    heads.poller.drop(of("a", 2)[0])
    heads.poller.keep_only({of("a", 1)[0]})
    await heads.answer(of("a", 1)[1])
    assert heads.asked == [of("a", 1)[1]]
    assert not await heads.poller.settle()


async def test_a_bug_in_a_request_is_an_answer_too() -> None:
    async def crash(_: Question) -> Answer:
        raise RuntimeError

    ready: list[Key] = []
    poller = HeadPoller(crash, ready.append, FrozenClock().monotonic)
    assert poller.take(KEY, QUESTION) is None
    assert await poller.settle()
    assert ready == [KEY]
    assert poller.take(KEY, QUESTION) == Answer()


@given(st.text(), st.integers(0, 10_000))
def test_a_pause_has_bounds(key: str, silences: int) -> None:
    pause = pause_seconds(key, silences)
    least = PAUSE_FIRST_SECONDS if silences else 0.0
    assert least <= pause <= PAUSE_LAST_SECONDS * (1 + PAUSE_JITTER)
    assert pause_seconds(key, 0) == 0.0
