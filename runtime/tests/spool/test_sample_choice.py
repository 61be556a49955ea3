"""Which answers of a step are recorded, and what of them."""

from __future__ import annotations

import math

import pytest

from rljob_runtime.contract import ContractError, Finish, Sample, SampleSource, sample_file
from rljob_runtime.contract.samples import shortened
from rljob_runtime.spool.sample_choice import by_score, final_answers, parts_of, same_prompts


def test_answers_are_spread_from_the_best_to_the_worst_and_the_longest_is_among_them() -> None:
    scores = {f"a{number}": float(number) for number in range(100)}
    chosen = by_score(scores, "elsewhere", 8)
    assert chosen == ["a99", "a83", "a66", "a49", "a33", "a17", "a0", "elsewhere"]
    assert by_score(scores, "a99", 8) == chosen[:-1]
    assert by_score(scores | {"bad": math.nan}, None, 2) == ["a99", "bad"]


@pytest.mark.parametrize("count", [1, 2, 3, 64])
@pytest.mark.parametrize("size", [0, 1, 2, 5])
def test_there_are_never_more_answers_than_are_asked_for(count: int, size: int) -> None:
    scores = {number: float(number % 2) for number in range(size)}
    chosen = by_score(scores, size - 1 if size else None, count)
    assert len(chosen) == len(set(chosen)) <= count
    assert len(chosen) >= min(count, size) - 1
    assert bool(chosen) is bool(size)


def test_a_validation_shows_the_same_prompts_in_whatever_order_they_end() -> None:
    prompts = [f"What is {number} + 1?" for number in range(50) for _ in range(2)]
    first = [prompts[place] for place in same_prompts(prompts, 4)]
    prompts.reverse()
    assert [prompts[place] for place in same_prompts(prompts, 4)] == first
    assert len(set(first)) == 4
    assert same_prompts(["\ud800", "a"], 8) != []


def test_of_a_conversation_the_last_answer_counts_and_padding_does_not() -> None:
    keys = ["p_0_0", "q_0_0", "p_0_1", "p_1_0", "pad_0_0", "status"]
    tags = [{"response_len": number, "is_padding": key.startswith("pad")} for number, key in enumerate(keys)]
    assert {key: tag["response_len"] for key, tag in final_answers(keys, tags).items()} == {
        "q_0_0": 1,
        "p_0_1": 2,
        "p_1_0": 3,
    }


def test_of_a_long_text_the_middle_is_left_out() -> None:
    text = "a" * 60 + "b" * 1000 + "c" * 41
    assert shortened(text, 101) == f"{'a' * 50}\n[... 1000 characters are left out ...]\n{'b' * 10}{'c' * 41}"
    assert shortened(text, 1101) == text


def test_numbers_and_short_texts_of_a_reward_are_kept() -> None:
    reward = {"score": 1.0, "acc": True, "n": 3, "nan": math.nan, "why": "x" * 900, "list": [1], "none": None}
    kept = parts_of(reward)
    assert set(kept) == {"acc", "n", "why"}
    assert (kept["acc"], kept["n"]) == (True, 3.0)
    assert len(str(kept["why"])) < 300
    assert len(parts_of({str(number): number for number in range(99)})) == 16
    assert parts_of({"big": 10**400, "\ud800": 1}) == {"\\ud800": 1.0}


def test_a_line_is_read_as_it_was_written_and_its_file_sorts_by_step() -> None:
    sample = Sample(
        7, SampleSource.ROLLOUT, "p\n\ud800", "\x1b[31m", 0.5, {"acc": True}, "72", "gsm8k", 3, 2, Finish.STOP
    )
    read = Sample.from_json(sample.to_json())
    assert b"\n" not in sample.to_json()
    assert (read.answer, read.parts, read.finish, read.prompt) == ("\x1b[31m", {"acc": True}, Finish.STOP, "p\n\\ud800")
    with pytest.raises(ContractError, match=r"Sample\.prompt: missing"):
        Sample.from_json('{"step": 1, "source": "rollout", "answer": ""}')
    names = [sample_file(step, SampleSource.ROLLOUT) for step in (9, 10, 1000)]
    assert names == sorted(names)
